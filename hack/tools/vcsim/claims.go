package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// claims keep names and instance UUIDs of machines that are being made, so that two calls at once
// never get the same.
type claims struct {
	mu    sync.Mutex
	names map[string]chan struct{} // closed when the machine is there or will never be
	uuids map[string]bool
}

func newClaims() *claims {
	return &claims{names: map[string]chan struct{}{}, uuids: map[string]bool{}}
}

// claimName reserves a name in a folder from the start of a task to its end. The second return
// value is the claim of somebody else, if there is one.
func (in *Instance) claimName(folder moRef, name string) (release func(), other <-chan struct{}) {
	key := folder.Value + "/" + escape(unescape(name))
	in.claims.mu.Lock()
	defer in.claims.mu.Unlock()
	if taken, ok := in.claims.names[key]; ok {
		return nil, taken
	}
	claim := make(chan struct{})
	in.claims.names[key] = claim
	return func() {
		in.claims.mu.Lock()
		delete(in.claims.names, key)
		in.claims.mu.Unlock()
		close(claim)
	}, nil
}

// sibling is the object in a folder that bears the name.
func (in *Instance) sibling(folder moRef, name string) *moRef {
	for _, ref := range in.children(folder) {
		if entity, ok := in.entity(ref); ok && unescape(entityName(entity)) == unescape(name) {
			return &ref
		}
	}
	return nil
}

// duplicate is the fault for a name that is taken; it waits until the object that has it is known.
func (in *Instance) duplicate(folder moRef, name string, other <-chan struct{}) types.BaseMethodFault {
	if other != nil {
		<-other
	}
	fault := &types.DuplicateName{Name: name, Object: folder}
	if ref := in.sibling(folder, name); ref != nil {
		fault.Object = *ref
	}
	return fault
}

// claimInstanceUUID reserves an instance UUID. One that another machine has is replaced, as vCenter
// does; only the program itself may make copies of it.
func (in *Instance) claimInstanceUUID(wanted, account, seed string) (id string, release func()) {
	in.claims.mu.Lock()
	defer in.claims.mu.Unlock()
	id = strings.ToLower(wanted)
	if id == "" || (account != "" && in.instanceUUIDTaken(id)) {
		id = in.derivedUUID("instance", seed+decimal(uuidSeeds.Add(1)))
	}
	in.claims.uuids[id] = true
	return id, func() {
		in.claims.mu.Lock()
		delete(in.claims.uuids, id)
		in.claims.mu.Unlock()
	}
}

var uuidSeeds atomic.Int64

func (in *Instance) instanceUUIDTaken(id string) bool {
	if in.claims.uuids[id] {
		return true
	}
	for _, entity := range in.registry().All("VirtualMachine") {
		vm, ok := entity.(*simulator.VirtualMachine)
		if ok && vm.Config != nil && strings.EqualFold(vm.Config.InstanceUuid, id) {
			return true
		}
	}
	return false
}

// macAddresses hands out addresses of the range that vCenters assign from, 00:50:56:80-bf.
type macAddresses struct {
	offset uint32
	next   atomic.Uint32
}

func (m *macAddresses) start(instanceUUID string) {
	sum := sha256.Sum256([]byte(instanceUUID))
	m.offset = uint32(sum[0]) << 16
}

func (m *macAddresses) take() string {
	n := m.offset + m.next.Add(1)
	return fmt.Sprintf("00:50:56:%02x:%02x:%02x", 0x80|n>>16&0x3f, n>>8&0xff, n&0xff)
}
