package main

import (
	"crypto/subtle"
	"sync"

	"github.com/vmware/govmomi/vim25/types"
)

// accounts know who may log in.
type accounts struct {
	mu        sync.Mutex
	passwords map[string]string
}

func newAccounts(name, password string) *accounts {
	a := &accounts{passwords: map[string]string{}}
	if name != "" {
		a.passwords[name] = password
	}
	return a
}

func (a *accounts) set(name, password string) {
	a.mu.Lock()
	a.passwords[name] = password
	a.mu.Unlock()
}

func (a *accounts) remove(name string) {
	a.mu.Lock()
	delete(a.passwords, name)
	a.mu.Unlock()
}

func (a *accounts) valid(login *types.Login) bool {
	a.mu.Lock()
	password, ok := a.passwords[login.UserName]
	a.mu.Unlock()
	return ok && subtle.ConstantTimeCompare([]byte(password), []byte(login.Password)) == 1
}
