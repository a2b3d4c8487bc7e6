package main

import (
	"context"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/internal/kube"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
)

// caInjector writes certificate authorities into whatever is annotated to get one.
type caInjector struct {
	kubeconfig string
	logs       *logsapi.LoggingConfiguration
}

func newCAInjector() *caInjector {
	return &caInjector{logs: logsapi.NewLoggingConfiguration()}
}

func (c *caInjector) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.kubeconfig, "kubeconfig", "",
		"how to reach the cluster; by default as a pod of it")
	logf.AddFlagsNonDeprecated(c.logs, flags)
}

func (c *caInjector) logging() *logsapi.LoggingConfiguration { return c.logs }

func (c *caInjector) run(ctx context.Context) error {
	config, err := kube.BuildClientConfig("", c.kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := injectorScheme()
	if err != nil {
		return err
	}
	// The injector takes its field manager from the user agent; the default one leaves it empty,
	// and the server then refuses every injection.
	manager, err := ctrl.NewManager(util.RestConfigWithUserAgent(config, "cainjector"), ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Secrets are watched by their metadata and read one by one: all of a cluster's Secrets
		// have no business in this process.
		Client: client.Options{
			Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}},
		},
	})
	if err != nil {
		return err
	}
	err = cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.APIServiceName:                     true,
			cainjector.CustomResourceDefinitionName:       true,
		},
	})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

// injectorScheme knows every kind that is injected into or read from.
func injectorScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(
		clientgoscheme.AddToScheme,
		apiextensionsv1.AddToScheme,
		apiregistrationv1.AddToScheme,
		certmanagerv1.AddToScheme,
	)
	return scheme, builder.AddToScheme(scheme)
}
