// Workload-api serves the API of Kubernetes clusters that have no machines: one process is API
// server and etcd of any number of them, as Cluster API's own in-memory provider is, whose packages
// it is made of. Tests drive it by a control interface; see README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2/textlogger"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	ctrl "sigs.k8s.io/controller-runtime"
)

const headerTimeout = 10 * time.Second

func main() {
	host := flag.String("host", "127.0.0.1", "IP address at which clients reach the clusters; their certificates name it")
	control := flag.String("control", "127.0.0.1:0", "address of the control interface")
	verbosity := flag.Int("v", 0, "how much is logged; 4 is every request")
	flag.Parse()
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(*verbosity))))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *host, *control); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until the context ends. Once it is ready it prints the control interface as JSON.
func run(ctx context.Context, host, control string) error {
	served, err := newClusters(ctx, host)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", control)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: served.handler(), ReadHeaderTimeout: headerTimeout}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	ready := map[string]string{"control": "http://" + listener.Addr().String(), "host": host}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newClusters starts the store that all clusters share; none is there yet.
func newClusters(ctx context.Context, host string) (*clusters, error) {
	if net.ParseIP(host) == nil {
		return nil, fmt.Errorf("%q is no IP address", host)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme,
		storagev1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	manager := inmemoryruntime.NewManager(scheme)
	if err := manager.Start(ctx); err != nil {
		return nil, err
	}
	// Port 0: nobody needs upstream's debug server, which cannot be left out.
	mux, err := inmemoryserver.NewWorkloadClustersMux(manager, host, inmemoryserver.CustomPorts{
		MinPort: inmemoryserver.DefaultMinPort, MaxPort: inmemoryserver.DefaultMaxPort,
	})
	if err != nil {
		return nil, err
	}
	teachJSONPatch(mux)
	return &clusters{manager: manager, mux: mux, host: host}, nil
}
