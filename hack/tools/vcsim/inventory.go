package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// machines are all virtual machines and templates, by moRef.
func (in *Instance) machines() []*simulator.VirtualMachine {
	var found []*simulator.VirtualMachine
	for _, entity := range in.registry().All("VirtualMachine") {
		if vm, ok := entity.(*simulator.VirtualMachine); ok && !in.hub.removed(vm.Self) {
			found = append(found, vm)
		}
	}
	slices.SortFunc(found, func(a, b *simulator.VirtualMachine) int {
		return strings.Compare(a.Self.Value, b.Self.Value)
	})
	return found
}

// managed is the struct of package mo inside an object of the simulator or of ours.
func managed(obj mo.Reference) reflect.Value {
	value := reflect.Indirect(reflect.ValueOf(obj))
	for value.Kind() == reflect.Struct && filepath.Base(value.Type().PkgPath()) != "mo" {
		if value.NumField() == 0 {
			return reflect.Value{}
		}
		value = reflect.Indirect(value.Field(0))
	}
	return value
}

// entity is the object behind a reference if it is part of the inventory.
func (in *Instance) entity(ref moRef) (mo.Entity, bool) {
	entity, ok := in.registry().Get(plain(ref)).(mo.Entity)
	return entity, ok && !in.hub.removed(ref)
}

// plain is the reference that the registry knows, whatever server a client added to it.
func plain(ref moRef) moRef {
	ref.ServerGUID = ""
	return ref
}

// entityName is the name of an object, "" while it is being created.
func entityName(entity mo.Entity) string {
	if name := entity.Entity().Name; name != "" {
		return name
	}
	// Networks and switches have a name of their own that hides the entity's.
	if value := managed(entity); value.Kind() == reflect.Struct {
		if name := value.FieldByName("Name"); name.IsValid() && name.Kind() == reflect.String {
			return name.String()
		}
	}
	return ""
}

func (in *Instance) nameOf(ref moRef) string {
	if entity, ok := in.entity(ref); ok {
		return entityName(entity)
	}
	return ref.Value
}

// parents are the objects above an entity, nearest first. Machines have their folder as parent.
func (in *Instance) parents(entity mo.Entity) []mo.Entity {
	var above []mo.Entity
	for {
		ref := entity.Entity().Parent
		if ref == nil {
			return above
		}
		parent, ok := in.entity(*ref)
		if !ok {
			return above
		}
		above = append(above, parent)
		entity = parent
	}
}

// pathOf is the inventory path, such as /DC0/vm/team-a/web.
func (in *Instance) pathOf(entity mo.Entity) string {
	names := []string{entityName(entity)}
	for _, parent := range in.parents(entity) {
		if parent.Entity().Parent != nil { // the root folder is not part of a path
			names = append(names, entityName(parent))
		}
	}
	slices.Reverse(names)
	return "/" + strings.Join(names, "/")
}

func (in *Instance) datacenterOf(entity mo.Entity) *simulator.Datacenter {
	for _, parent := range append([]mo.Entity{entity}, in.parents(entity)...) {
		if dc, ok := parent.(*simulator.Datacenter); ok {
			return dc
		}
	}
	return nil
}

// computeOf is the compute resource that a resource pool or host belongs to.
func (in *Instance) computeOf(entity mo.Entity) (moRef, *mo.ComputeResource) {
	for _, parent := range in.parents(entity) {
		switch x := parent.(type) {
		case *simulator.ClusterComputeResource:
			return x.Self, &x.ComputeResource
		case *mo.ComputeResource:
			return x.Self, x
		}
	}
	return moRef{}, nil
}

// find is the entity with that moRef, that inventory path, or that name if only one bears it.
func (in *Instance) find(text string) (mo.Entity, error) {
	var named []mo.Entity
	for _, entity := range in.registry().All("") {
		if in.hub.removed(entity.Reference()) {
			continue
		}
		if entity.Reference().Value == text {
			return entity, nil
		}
		if strings.HasPrefix(text, "/") && in.pathOf(entity) == text {
			return entity, nil
		}
		if entityName(entity) == text {
			named = append(named, entity)
		}
	}
	switch len(named) {
	case 0:
		return nil, fmt.Errorf("nothing in the inventory is %q", text)
	case 1:
		return named[0], nil
	}
	return nil, fmt.Errorf("%d objects are called %q: give the path or the moRef", len(named), text)
}

func (in *Instance) findMachine(text string) (*simulator.VirtualMachine, error) {
	entity, err := in.find(text)
	if err != nil {
		return nil, err
	}
	vm, ok := entity.(*simulator.VirtualMachine)
	if !ok {
		return nil, fmt.Errorf("%s is a %s, not a machine", text, entity.Reference().Type)
	}
	return vm, nil
}

// networkName is the name of the network behind a network card's backing.
func (in *Instance) networkName(backing types.BaseVirtualDeviceBackingInfo) string {
	switch b := backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return b.DeviceName
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		ref := moRef{Type: "DistributedVirtualPortgroup", Value: b.Port.PortgroupKey}
		if _, ok := in.entity(ref); ok {
			return in.nameOf(ref)
		}
	}
	return ""
}

// datastoreFile is where the simulator keeps a datastore path such as "[ds] web/web.vmdk".
func (in *Instance) datastoreFile(dc *simulator.Datacenter, path string) (string, bool) {
	name, rest, ok := splitDatastorePath(path)
	if !ok || dc == nil {
		return "", false
	}
	ds := in.datastoreNamed(name, dc.Datastore)
	if ds == nil {
		return "", false
	}
	return filepath.Join(ds.Summary.Url, filepath.FromSlash(rest)), true
}

func splitDatastorePath(path string) (datastore, rest string, ok bool) {
	text, ok := strings.CutPrefix(path, "[")
	if !ok {
		return "", "", false
	}
	datastore, rest, ok = strings.Cut(text, "]")
	return datastore, strings.TrimSpace(rest), ok
}

func (in *Instance) datastoreNamed(name string, among []moRef) *simulator.Datastore {
	for _, ref := range among {
		if ds, ok := in.registry().Get(ref).(*simulator.Datastore); ok && ds.Name == name {
			return ds
		}
	}
	return nil
}

// files are the paths of everything in the datastores, directories with a slash behind.
func (in *Instance) files() []string {
	seen := map[string]bool{}
	for _, entity := range in.registry().All("Datastore") {
		ds, ok := entity.(*simulator.Datastore)
		if !ok {
			continue
		}
		root := ds.Summary.Url
		_ = filepath.WalkDir(root, func(path string, item os.DirEntry, err error) error {
			if err != nil || path == root {
				return nil //nolint:nilerr // a file may go away while it is listed
			}
			rest, _ := filepath.Rel(root, path)
			name := fmt.Sprintf("%s [%s] %s", in.pathOf(ds), ds.Name, filepath.ToSlash(rest))
			if item.IsDir() {
				name += "/"
			}
			seen[name] = true
			return nil
		})
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// escape writes a name the way vCenter stores it.
func escape(name string) string {
	return strings.NewReplacer("%", "%25", "/", "%2f", `\`, "%5c").Replace(name)
}

func unescape(name string) string {
	if plain, err := url.PathUnescape(name); err == nil {
		return plain
	}
	return name
}
