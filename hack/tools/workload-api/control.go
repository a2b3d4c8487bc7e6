package main

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	"sigs.k8s.io/cluster-api/util/certs"
)

const largestBody = 1 << 20

// clusters is what the control interface steers. Upstream's own locks cover single steps only.
type clusters struct {
	mu      sync.Mutex
	manager inmemoryruntime.Manager
	mux     *inmemoryserver.WorkloadClustersMux
	host    string
}

// authority is the CA that signs what an API server or an etcd member serves with, both as PEM.
type authority struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// wish is how a cluster is asked for. A port of 0 is one that the program chooses.
type wish struct {
	Port int32 `json:"port"`
}

// refusal is an error with the status that tells it.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }

func refused(status int, format string, values ...any) error {
	return &refusal{status, fmt.Errorf(format, values...)}
}

func (c *clusters) handler() http.Handler {
	routes := http.NewServeMux()
	handle := func(pattern string, do func(*http.Request) (any, error)) {
		routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			defer c.mu.Unlock()
			answer, err := do(r)
			tell(w, answer, err)
		})
	}
	handle("GET /healthz", func(*http.Request) (any, error) { return nil, nil })
	handle("GET /clusters", func(*http.Request) (any, error) { return c.mux.ListListeners(), nil })
	handle("GET /clusters/{cluster}", c.look)
	handle("PUT /clusters/{cluster}", c.add)
	handle("DELETE /clusters/{cluster}", c.remove)
	handle("PUT /clusters/{cluster}/api-servers/{pod}", c.member(c.mux.AddAPIServer))
	handle("DELETE /clusters/{cluster}/api-servers/{pod}", c.withoutMember(c.mux.DeleteAPIServer))
	handle("PUT /clusters/{cluster}/etcd-members/{pod}", c.member(c.mux.AddEtcdMember))
	handle("DELETE /clusters/{cluster}/etcd-members/{pod}", c.withoutMember(c.mux.DeleteEtcdMember))
	return routes
}

func tell(w http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	var known *refusal
	switch {
	case errors.As(err, &known):
		status, answer = known.status, map[string]string{"error": err.Error()}
	case err != nil:
		status, answer = http.StatusInternalServerError, map[string]string{"error": err.Error()}
	case answer == nil:
		answer = map[string]string{}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (c *clusters) known(r *http.Request) (string, error) {
	name := r.PathValue("cluster")
	if c.mux.GetCluster(name) == nil {
		return "", refused(http.StatusNotFound, "no cluster is called %s", name)
	}
	return name, nil
}

func (c *clusters) look(r *http.Request) (any, error) {
	name, err := c.known(r)
	if err != nil {
		return nil, err
	}
	return c.mux.GetCluster(name), nil
}

// add makes a cluster that serves nothing before it has an API server. One that is there stays.
func (c *clusters) add(r *http.Request) (any, error) {
	var wanted wish
	if err := read(r, &wanted); err != nil {
		return nil, err
	}
	name := r.PathValue("cluster")
	if found := c.mux.GetCluster(name); found != nil && wanted.Port != 0 && wanted.Port != found.Port {
		return nil, refused(http.StatusConflict, "%s has port %d already", name, found.Port)
	}
	if _, err := c.mux.InitWorkloadClusterListener(name, wanted.Port); err != nil {
		return nil, err
	}
	c.manager.AddResourceGroup(name)
	if err := c.mux.RegisterResourceGroup(name, name); err != nil {
		return nil, err
	}
	return c.mux.GetCluster(name), nil
}

func (c *clusters) remove(r *http.Request) (any, error) {
	name, err := c.known(r)
	if err != nil {
		return nil, err
	}
	if err := c.mux.DeleteWorkloadClusterListener(name); err != nil {
		return nil, err
	}
	c.manager.DeleteResourceGroup(name)
	return nil, nil
}

type adding = func(cluster, pod string, certificate *x509.Certificate, key *rsa.PrivateKey) error

func (c *clusters) member(add adding) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		name, err := c.known(r)
		if err != nil {
			return nil, err
		}
		var signer authority
		if err := read(r, &signer); err != nil {
			return nil, err
		}
		certificate, key, err := signer.parse()
		if err != nil {
			return nil, err
		}
		return nil, add(name, r.PathValue("pod"), certificate, key)
	}
}

func (c *clusters) withoutMember(remove func(cluster, pod string) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		name, err := c.known(r)
		if err != nil {
			return nil, err
		}
		return nil, remove(name, r.PathValue("pod"))
	}
}

// parse never tells what the key is, only that it is none.
func (a authority) parse() (*x509.Certificate, *rsa.PrivateKey, error) {
	certificate, err := certs.DecodeCertPEM([]byte(a.Certificate))
	if err != nil || certificate == nil {
		return nil, nil, refused(http.StatusBadRequest, "certificate is no certificate in PEM")
	}
	signer, err := certs.DecodePrivateKeyPEM([]byte(a.Key))
	if err != nil {
		return nil, nil, refused(http.StatusBadRequest, "key is no private key in PEM")
	}
	key, ok := signer.(*rsa.PrivateKey)
	if !ok {
		return nil, nil, refused(http.StatusBadRequest, "key is no RSA key, and upstream's server takes no other")
	}
	return certificate, key, nil
}

func read(r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, largestBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		// The decoder quotes single characters and names of fields, never values.
		return refused(http.StatusBadRequest, "the body is not what it has to be: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
