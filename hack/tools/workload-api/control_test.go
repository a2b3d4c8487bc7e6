package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sigs.k8s.io/cluster-api/util/certs"
)

func serve(t *testing.T) *httptest.Server {
	t.Helper()
	served, err := newClusters(t.Context(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(served.handler())
	t.Cleanup(server.Close)
	return server
}

func ask(t *testing.T, method, url, body string, want int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != want {
		t.Fatalf("%s %s: %s, want %d", method, url, answer.Status, want)
	}
}

func TestWhatCannotBeDoneIsRefused(t *testing.T) {
	url := serve(t).URL
	ask(t, "GET", url+"/clusters/none", "", http.StatusNotFound)
	ask(t, "DELETE", url+"/clusters/none", "", http.StatusNotFound)
	ask(t, "PUT", url+"/clusters/one", `{"prot": 1}`, http.StatusBadRequest)
	ask(t, "PUT", url+"/clusters/one", `{"port": 21999}`, http.StatusOK)
	ask(t, "PUT", url+"/clusters/one", `{"port": 21998}`, http.StatusConflict)
	ask(t, "PUT", url+"/clusters/one", `{}`, http.StatusOK)
	ask(t, "PUT", url+"/clusters/one/api-servers/a", `{"certificate": "", "key": ""}`, http.StatusBadRequest)
	ask(t, "PUT", url+"/clusters/none/api-servers/a", `{}`, http.StatusNotFound)
	ask(t, "DELETE", url+"/clusters/one", "", http.StatusOK)
	ask(t, "GET", url+"/clusters/one", "", http.StatusNotFound)
}

func TestNoHostButAnAddress(t *testing.T) {
	if _, err := newClusters(t.Context(), "localhost"); err == nil {
		t.Fatal("a name cannot be put into upstream's certificates")
	}
}

func TestAKeyIsNeverTold(t *testing.T) {
	key, err := certs.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = authority{Certificate: "", Key: string(certs.EncodePrivateKeyPEM(key))}.parse()
	if err == nil || strings.Contains(err.Error(), "PRIVATE") {
		t.Fatalf("told: %v", err)
	}
}
