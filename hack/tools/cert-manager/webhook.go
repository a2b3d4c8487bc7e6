package main

import (
	"context"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	config "github.com/cert-manager/cert-manager/internal/apis/config/webhook"
	certmanagerwebhook "github.com/cert-manager/cert-manager/internal/webhook"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
)

// webhook validates and defaults cert-manager's own objects. It takes upstream's flags.
type webhook struct {
	configuration *config.WebhookConfiguration
}

func newWebhook() (*webhook, error) {
	configuration, err := options.NewWebhookConfiguration()
	if err != nil {
		return nil, err
	}
	return &webhook{configuration}, nil
}

func (w *webhook) addFlags(flags *pflag.FlagSet) {
	options.AddConfigFlags(flags, w.configuration)
}

func (w *webhook) logging() *logsapi.LoggingConfiguration { return &w.configuration.Logging }

func (w *webhook) run(ctx context.Context) error {
	server, err := certmanagerwebhook.NewCertManagerWebhookServer(
		logf.FromContext(ctx), *w.configuration,
	)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
