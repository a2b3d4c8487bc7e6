// Cert-manager is the certificate manager that Cluster API's webhooks need, in one binary with
// three roles. Upstream's own mains are modules that no module proxy serves; all that they do is in
// packages of the root module, and this main joins the parts that a local cluster uses: issuers of
// kind CA and SelfSigned. ACME, Vault, Venafi and the ingress shim are left out.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
)

const usage = `usage: cert-manager ROLE [flags]

  controller  issues certificates
  cainjector  writes certificate authorities into webhook configurations, CRDs and APIServices
  webhook     validates and defaults cert-manager's own objects
  version     prints the version

cert-manager ROLE --help lists the flags of a role.
`

// errUsage is a command line that cannot be carried out; the reason is already printed.
var errUsage = errors.New("unusable command line")

// role is one of the three programs.
type role interface {
	// addFlags declares the flags of the role, the logging flags among them.
	addFlags(flags *pflag.FlagSet)
	// logging is what the logging flags were set to.
	logging() *logsapi.LoggingConfiguration
	// run works until the context ends; it then returns nil.
	run(ctx context.Context) error
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := 0
	switch err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, errUsage):
		code = 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		code = 1
	}
	stop()
	logf.FlushLogs()
	os.Exit(code)
}

// command carries out one command line, without the program's name.
func command(ctx context.Context, arguments []string, out, complaints io.Writer) error {
	if len(arguments) == 0 {
		fmt.Fprint(complaints, usage)
		return errUsage
	}
	switch name := arguments[0]; name {
	case "version", "--version":
		fmt.Fprintln(out, util.AppVersion)
		return nil
	case "help", "--help", "-h":
		fmt.Fprint(out, usage)
		return nil
	default:
		chosen, err := roleNamed(name)
		if err != nil {
			return err
		}
		if chosen == nil {
			fmt.Fprintf(complaints, "no role is called %q\n%s", name, usage)
			return errUsage
		}
		return runRole(ctx, name, chosen, arguments[1:], out, complaints)
	}
}

// roleNamed is the role of that name, or nil when there is none.
func roleNamed(name string) (role, error) {
	switch name {
	case "controller":
		return newController(), nil
	case "cainjector":
		return newCAInjector(), nil
	case "webhook":
		return newWebhook()
	}
	return nil, nil
}

func runRole(
	ctx context.Context, name string, chosen role, arguments []string, out, complaints io.Writer,
) error {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.Usage = func() { fmt.Fprintf(out, "flags of %s:\n%s", name, flags.FlagUsages()) }
	chosen.addFlags(flags)
	switch err := flags.Parse(arguments); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		fmt.Fprintln(complaints, err)
		return errUsage
	case flags.NArg() > 0:
		fmt.Fprintf(complaints, "%s takes no argument %q\n", name, flags.Arg(0))
		return errUsage
	}
	logf.InitLogs()
	if err := logf.ValidateAndApply(chosen.logging()); err != nil {
		return err
	}
	log := klog.Background().WithName(name)
	ctrl.SetLogger(log)
	log.Info("starting", "version", util.AppVersion)
	if err := chosen.run(logf.NewContext(ctx, log)); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
