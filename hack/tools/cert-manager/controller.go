package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/cert-manager/cert-manager/pkg/controller"
	logf "github.com/cert-manager/cert-manager/pkg/logs"

	// Each of these registers itself with the controller package.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

const workersPerController = 2

// certificateController issues certificates.
type certificateController struct {
	options controller.ContextOptions
	logs    *logsapi.LoggingConfiguration
}

func newController() *certificateController {
	return &certificateController{
		options: controller.ContextOptions{
			// Upstream's defaults; the rates hold only where the server has no flow control.
			KubernetesAPIQPS:   20,
			KubernetesAPIBurst: 50,
			IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
			CertificateOptions: controller.CertificateOptions{
				CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/"},
				CertificateRequestMinimumBackoffDuration: time.Hour,
				CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
			},
		},
		logs: logsapi.NewLoggingConfiguration(),
	}
}

func (c *certificateController) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.options.Kubeconfig, "kubeconfig", "",
		"how to reach the cluster; by default as a pod of it")
	flags.StringVar(&c.options.ClusterResourceNamespace, "cluster-resource-namespace",
		c.options.ClusterResourceNamespace, "namespace of the Secrets that ClusterIssuers name")
	logf.AddFlagsNonDeprecated(c.logs, flags)
}

func (c *certificateController) logging() *logsapi.LoggingConfiguration { return c.logs }

func (c *certificateController) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	factory, err := controller.NewContextFactory(ctx, c.options)
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	// Every controller asks for its informers here: start them only after all have.
	loops := make(map[string]controller.Interface)
	for name, construct := range controller.Known() {
		if loops[name], err = construct(factory); err != nil {
			return fmt.Errorf("cannot set up %s: %w", name, err)
		}
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	for name, loop := range loops {
		group.Go(func() error {
			if err := loop.Run(workersPerController, ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s ended: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}
