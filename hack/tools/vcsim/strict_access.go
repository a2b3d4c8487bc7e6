package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Permission says what an account may do on an entity and, with Propagate, on everything below it.
// The nearest one decides; where there is none, the account is an administrator.
type Permission struct {
	Account    string   `json:"account"`
	Entity     string   `json:"entity"`               // path, moRef or name; "" is the root folder
	Privileges []string `json:"privileges,omitempty"` // exactly these; an empty list hides the entity
	Without    []string `json:"without,omitempty"`    // an administrator's, but not these
	Propagate  *bool    `json:"propagate,omitempty"`  // true when absent
}

type grant struct {
	permission Permission
	only       map[string]bool // nil: everything
	without    map[string]bool
	propagate  bool
}

func (g grant) allows(privilege string) bool {
	if g.only != nil {
		return g.only[privilege]
	}
	return !g.without[privilege]
}

// access keeps the permissions of accounts.
type access struct {
	in    *Instance
	known map[string]bool

	mu     sync.RWMutex
	grants map[string]map[moRef]grant
}

func newAccess(in *Instance) *access {
	a := &access{in: in, known: map[string]bool{}, grants: map[string]map[moRef]grant{}}
	for _, role := range esx.RoleList {
		for _, privilege := range role.Privilege {
			a.known[privilege] = true
		}
	}
	return a
}

// set adds or replaces the permission of an account on an entity.
func (a *access) set(p Permission) error {
	entity, err := a.in.findOrRoot(p.Entity)
	if err != nil {
		return err
	}
	if p.Account == "" {
		return fmt.Errorf("a permission needs an account")
	}
	if len(p.Privileges) > 0 && len(p.Without) > 0 {
		return fmt.Errorf("give privileges or without, not both")
	}
	g := grant{permission: p, propagate: p.Propagate == nil || *p.Propagate}
	if len(p.Without) > 0 {
		g.without, err = a.named(p.Without)
	} else {
		g.only, err = a.named(p.Privileges)
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	if a.grants[p.Account] == nil {
		a.grants[p.Account] = map[moRef]grant{}
	}
	a.grants[p.Account][entity.Reference()] = g
	a.mu.Unlock()
	a.in.hub.pokeAll()
	return nil
}

func (a *access) named(privileges []string) (map[string]bool, error) {
	set := map[string]bool{}
	for _, privilege := range privileges {
		if !a.known[privilege] {
			return nil, fmt.Errorf("no privilege is called %q", privilege)
		}
		set[privilege] = true
	}
	return set, nil
}

// clear takes permissions away: all, those of an account, or the one on an entity.
func (a *access) clear(account, entity string) error {
	var ref moRef
	if entity != "" {
		found, err := a.in.findOrRoot(entity)
		if err != nil {
			return err
		}
		ref = found.Reference()
	}
	a.mu.Lock()
	for name, grants := range a.grants {
		if account != "" && account != name {
			continue
		}
		if entity == "" {
			clear(grants)
		} else {
			delete(grants, ref)
		}
		if len(grants) == 0 {
			delete(a.grants, name)
		}
	}
	a.mu.Unlock()
	a.in.hub.pokeAll()
	return nil
}

func (a *access) list() []Permission {
	a.mu.RLock()
	defer a.mu.RUnlock()
	permissions := []Permission{}
	for _, grants := range a.grants {
		for ref, g := range grants {
			p := g.permission
			p.Entity = ref.Value
			permissions = append(permissions, p)
		}
	}
	return permissions
}

func (a *access) limited(account string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return len(a.grants[account]) > 0
}

// allowed says whether the account has the privilege on the object.
func (a *access) allowed(account string, ref moRef, privilege string) bool {
	if !a.limited(account) {
		return true
	}
	entity, ok := a.in.entity(a.subject(ref))
	if !ok {
		return true // not part of the inventory: views, managers, sessions
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	grants := a.grants[account]
	if g, ok := grants[entity.Reference()]; ok {
		return g.allows(privilege)
	}
	for _, parent := range a.in.parents(entity) {
		if g, ok := grants[parent.Reference()]; ok && g.propagate {
			return g.allows(privilege)
		}
	}
	return true
}

func (a *access) visible(account string, ref moRef) bool {
	return a.allowed(account, ref, "System.View")
}

// subject is the inventory object whose permissions cover an object outside of the inventory.
func (a *access) subject(ref moRef) moRef {
	ref = plain(ref)
	switch object := a.in.registry().Get(ref).(type) {
	case *simulator.Task:
		if object.Info.Entity != nil {
			return plain(*object.Info.Entity)
		}
	case *simulator.VirtualMachineSnapshot:
		return object.Vm
	}
	return ref
}

func denied(ref moRef, privilege string) types.BaseMethodFault {
	return &types.NoPermission{Object: &ref, PrivilegeId: privilege}
}

// check refuses a call that the account lacks a privilege for.
func (a *access) check(account string, method *simulator.Method) types.BaseMethodFault {
	if !a.limited(account) {
		return nil
	}
	for _, need := range a.in.needs(method) {
		if !a.allowed(account, need.on, need.privilege) {
			return denied(need.on, need.privilege)
		}
	}
	return nil
}

// strictAuthorization answers from the permissions; the simulator grants everything.
type strictAuthorization struct {
	*simulator.AuthorizationManager

	in *Instance
}

func (m *strictAuthorization) granted(account string, entity moRef, privilege string) bool {
	return m.in.access.known[privilege] && m.in.access.allowed(account, entity, privilege)
}

func (m *strictAuthorization) availability(
	account string, entities []moRef, privileges []string,
) ([]types.EntityPrivilege, types.BaseMethodFault) {
	var answer []types.EntityPrivilege
	for _, entity := range entities {
		if _, ok := m.in.entity(entity); !ok {
			return nil, &types.ManagedObjectNotFound{Obj: entity}
		}
		each := types.EntityPrivilege{Entity: entity}
		for _, privilege := range privileges {
			each.PrivAvailability = append(each.PrivAvailability, types.PrivilegeAvailability{
				PrivId: privilege, IsGranted: m.granted(account, entity, privilege),
			})
		}
		answer = append(answer, each)
	}
	return answer, nil
}

// HasPrivilegeOnEntities asks for a session; the simulator answers only for the caller's own.
func (m *strictAuthorization) HasPrivilegeOnEntities(
	ctx *simulator.Context, req *types.HasPrivilegeOnEntities,
) soap.HasFault {
	answer, fault := m.availability(accountOf(ctx), req.Entity, req.PrivId)
	if fault != nil {
		return faulty(fault)
	}
	return &methods.HasPrivilegeOnEntitiesBody{
		Res: &types.HasPrivilegeOnEntitiesResponse{Returnval: answer},
	}
}

// HasPrivilegeOnEntityResponse is the library's type without its omitempty, which drops each false.
type HasPrivilegeOnEntityResponse struct {
	Returnval []bool `xml:"returnval"`
}

type hasPrivilegeOnEntityBody struct {
	Res *HasPrivilegeOnEntityResponse `xml:"HasPrivilegeOnEntityResponse,omitempty"`
}

func (*hasPrivilegeOnEntityBody) Fault() *soap.Fault { return nil }

// HasPrivilegeOnEntity is the same for one entity.
func (m *strictAuthorization) HasPrivilegeOnEntity(
	ctx *simulator.Context, req *types.HasPrivilegeOnEntity,
) soap.HasFault {
	body := &hasPrivilegeOnEntityBody{Res: &HasPrivilegeOnEntityResponse{}}
	for _, privilege := range req.PrivId {
		body.Res.Returnval = append(body.Res.Returnval, m.granted(accountOf(ctx), req.Entity, privilege))
	}
	return body
}

// HasUserPrivilegeOnEntities is the same for another account.
func (m *strictAuthorization) HasUserPrivilegeOnEntities(
	_ *simulator.Context, req *types.HasUserPrivilegeOnEntities,
) soap.HasFault {
	answer, fault := m.availability(req.UserName, req.Entities, req.PrivId)
	if fault != nil {
		return faulty(fault)
	}
	return &methods.HasUserPrivilegeOnEntitiesBody{
		Res: &types.HasUserPrivilegeOnEntitiesResponse{Returnval: answer},
	}
}

// FetchUserPrivilegeOnEntities lists all privileges of an account.
func (m *strictAuthorization) FetchUserPrivilegeOnEntities(
	_ *simulator.Context, req *types.FetchUserPrivilegeOnEntities,
) soap.HasFault {
	var answer []types.UserPrivilegeResult
	for _, entity := range req.Entities {
		each := types.UserPrivilegeResult{Entity: entity}
		for privilege := range m.in.access.known {
			if m.in.access.allowed(req.UserName, entity, privilege) {
				each.Privileges = append(each.Privileges, privilege)
			}
		}
		answer = append(answer, each)
	}
	return &methods.FetchUserPrivilegeOnEntitiesBody{
		Res: &types.FetchUserPrivilegeOnEntitiesResponse{Returnval: answer},
	}
}

func (in *Instance) findOrRoot(text string) (mo.Entity, error) {
	if strings.Trim(text, "/") == "" {
		entity, _ := in.entity(in.serviceInstance().Content.RootFolder)
		return entity, nil
	}
	return in.find(text)
}
