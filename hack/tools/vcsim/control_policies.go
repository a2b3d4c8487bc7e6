package main

import (
	"net/http"
)

// setPolicy says which datastores fulfil a storage policy.
func (c *control) setPolicy(_ *http.Request, body []byte) (any, error) {
	wanted, err := decode[struct {
		Policy     string   `json:"policy"`
		Datastores []string `json:"datastores"`
	}](body)
	if err != nil {
		return nil, err
	}
	p := &c.in.policies
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fulfilled == nil {
		p.fulfilled = map[string][]string{}
	}
	p.fulfilled[wanted.Policy] = wanted.Datastores
	return nothing, nil
}
