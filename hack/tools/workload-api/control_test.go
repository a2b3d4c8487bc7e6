package main

import (
	"io"
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

func TestJSONPatchesAreReadAndWritten(t *testing.T) {
	var written string
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"7"},"spec":{}}`))
			return
		}
		body, _ := io.ReadAll(r.Body)
		written = r.Method + " " + string(body)
	})
	server := httptest.NewServer(withJSONPatch(upstream))
	t.Cleanup(server.Close)
	patch := func(text string, want int) {
		request, _ := http.NewRequestWithContext(t.Context(), "PATCH", server.URL, strings.NewReader(text))
		request.Header.Set("Content-Type", jsonPatchType)
		answer, err := http.DefaultClient.Do(request)
		if err != nil || answer.StatusCode != want {
			t.Fatalf("%v %v, want %d", answer, err, want)
		}
		_ = answer.Body.Close()
	}
	patch(`[{"op":"test","path":"/metadata/resourceVersion","value":"6"}]`, http.StatusUnprocessableEntity)
	if written != "" {
		t.Fatalf("written in spite of the test: %s", written)
	}
	patch(`[{"op":"add","path":"/spec/providerID","value":"it"}]`, http.StatusOK)
	if written != `PUT {"metadata":{"resourceVersion":"7"},"spec":{"providerID":"it"}}` {
		t.Fatalf("written: %s", written)
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
