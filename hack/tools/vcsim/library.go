package main

import (
	"encoding/json"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/vmware/govmomi/vapi/vcenter"
)

const (
	templateItems = "/rest/vcenter/vm-template/library-items/"
	libraryItems  = "/rest/com/vmware/content/library/item/id:"
)

// withLibraryTemplates has the template items of content libraries say which VM they hold: the
// simulator makes that VM, by the name of the item, and has no word of it.
func (in *Instance) withLibraryTemplates(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item, ok := strings.CutPrefix(r.URL.Path, templateItems)
		if !ok || r.Method != http.MethodGet || strings.Contains(item, "/") {
			next.ServeHTTP(w, r)
			return
		}
		var told struct {
			Value struct {
				Name string `json:"name"`
				Type string `json:"type"`
			} `json:"value"`
		}
		ask := r.Clone(r.Context())
		ask.URL.Path = libraryItems + item
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, ask)
		if json.Unmarshal(answer.Body.Bytes(), &told) != nil || told.Value.Type != "vm-template" {
			next.ServeHTTP(w, r) // which says what is wrong
			return
		}
		info := vcenter.TemplateInfo{}
		for _, vm := range in.machines() {
			if vm.Config.Template && vm.Name == told.Value.Name {
				info.VmTemplate = vm.Self.Value
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(map[string]any{"value": info}); err != nil {
			log.Printf("library template: %v", err)
		}
	})
}
