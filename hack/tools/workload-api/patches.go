package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"unsafe"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
)

const jsonPatchType = "application/json-patch+json"

// teachJSONPatch has the API servers take JSON patches, which upstream's know nothing of. Its handler
// is not to be had otherwise than by the name of its field, so a change of the pin shows at start.
func teachJSONPatch(mux *inmemoryserver.WorkloadClustersMux) {
	field := reflect.ValueOf(mux).Elem().FieldByName("muxServer")
	server := (*http.Server)(unsafe.Pointer(field.UnsafeAddr()))
	server.Handler = withJSONPatch(server.Handler)
}

// withJSONPatch makes of a JSON patch a read and a write of the whole object. The version that was
// read goes along, so that nothing that was written in between is lost.
func withJSONPatch(upstream http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch || r.Header.Get("Content-Type") != jsonPatchType {
			upstream.ServeHTTP(w, r)
			return
		}
		found := httptest.NewRecorder()
		upstream.ServeHTTP(found, rewritten(r, http.MethodGet, nil))
		if found.Code != http.StatusOK {
			copyAnswer(w, found)
			return
		}
		changed, err := patched(found.Body.Bytes(), r.Body)
		if err != nil {
			refuse(w, err)
			return
		}
		upstream.ServeHTTP(w, rewritten(r, http.MethodPut, changed))
	})
}

func patched(object []byte, body io.Reader) ([]byte, error) {
	operations, err := io.ReadAll(io.LimitReader(body, largestBody))
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, err
	}
	return patch.Apply(object)
}

func rewritten(r *http.Request, method string, body []byte) *http.Request {
	made := r.Clone(r.Context())
	made.Method, made.Body, made.ContentLength = method, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	made.Header.Set("Content-Type", "application/json")
	made.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return made
}

func copyAnswer(w http.ResponseWriter, found *httptest.ResponseRecorder) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(found.Code)
	_, _ = w.Write(found.Body.Bytes())
}

// refuse answers as an API server does where an operation, such as a test, does not fit the object.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Reason:   metav1.StatusReasonInvalid,
		Message:  err.Error(),
		Code:     http.StatusUnprocessableEntity,
	})
}
