package main

import (
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// strictSearch finds only what the account may see, and survives machines that are being created.
type strictSearch struct {
	*simulator.SearchIndex

	in *Instance
}

func (s *strictSearch) sees(ctx *simulator.Context, ref moRef) bool {
	return !s.in.hub.removed(ref) && s.in.access.visible(accountOf(ctx), ref)
}

// machines are the visible machines that match, in no particular order.
func (s *strictSearch) machines(
	ctx *simulator.Context, match func(*simulator.VirtualMachine) bool,
) []moRef {
	var found []moRef
	for _, entity := range s.in.registry().All("VirtualMachine") {
		vm, ok := entity.(*simulator.VirtualMachine)
		if ok && vm.Config != nil && match(vm) && s.sees(ctx, vm.Self) {
			found = append(found, vm.Self)
		}
	}
	return found
}

func (s *strictSearch) byUUID(ctx *simulator.Context, id string, instance *bool) []moRef {
	return s.machines(ctx, func(vm *simulator.VirtualMachine) bool {
		if instance != nil && *instance {
			return strings.EqualFold(vm.Config.InstanceUuid, id)
		}
		return strings.EqualFold(vm.Config.Uuid, id)
	})
}

// visible keeps those references that the account may see.
func (s *strictSearch) visible(ctx *simulator.Context, refs []moRef) []moRef {
	var kept []moRef
	for _, ref := range refs {
		if s.sees(ctx, ref) {
			kept = append(kept, ref)
		}
	}
	return kept
}

func first(refs []moRef) *moRef {
	if len(refs) == 0 {
		return nil
	}
	return &refs[0]
}

// FindAllByUuid compares without regard to case.
func (s *strictSearch) FindAllByUuid(ctx *simulator.Context, req *types.FindAllByUuid) soap.HasFault {
	if !req.VmSearch {
		res := s.SearchIndex.FindAllByUuid(ctx, req).(*methods.FindAllByUuidBody)
		res.Res.Returnval = s.visible(ctx, res.Res.Returnval)
		return res
	}
	return &methods.FindAllByUuidBody{
		Res: &types.FindAllByUuidResponse{Returnval: s.byUUID(ctx, req.Uuid, req.InstanceUuid)},
	}
}

// FindByUuid is the first of FindAllByUuid.
func (s *strictSearch) FindByUuid(ctx *simulator.Context, req *types.FindByUuid) soap.HasFault {
	all := types.FindAllByUuid(*req)
	found := s.FindAllByUuid(ctx, &all).(*methods.FindAllByUuidBody).Res.Returnval
	return &methods.FindByUuidBody{Res: &types.FindByUuidResponse{Returnval: first(found)}}
}

// FindAllByDnsName looks at what guests report.
func (s *strictSearch) FindAllByDnsName(ctx *simulator.Context, req *types.FindAllByDnsName) soap.HasFault {
	if !req.VmSearch {
		res := s.SearchIndex.FindAllByDnsName(ctx, req).(*methods.FindAllByDnsNameBody)
		res.Res.Returnval = s.visible(ctx, res.Res.Returnval)
		return res
	}
	found := s.machines(ctx, func(vm *simulator.VirtualMachine) bool {
		return vm.Guest != nil && vm.Guest.HostName == req.DnsName
	})
	return &methods.FindAllByDnsNameBody{Res: &types.FindAllByDnsNameResponse{Returnval: found}}
}

// FindByDnsName is the first of FindAllByDnsName.
func (s *strictSearch) FindByDnsName(ctx *simulator.Context, req *types.FindByDnsName) soap.HasFault {
	all := types.FindAllByDnsName(*req)
	found := s.FindAllByDnsName(ctx, &all).(*methods.FindAllByDnsNameBody).Res.Returnval
	return &methods.FindByDnsNameBody{Res: &types.FindByDnsNameResponse{Returnval: first(found)}}
}

// FindAllByIp looks at what guests report.
func (s *strictSearch) FindAllByIp(ctx *simulator.Context, req *types.FindAllByIp) soap.HasFault {
	if !req.VmSearch {
		res := s.SearchIndex.FindAllByIp(ctx, req).(*methods.FindAllByIpBody)
		res.Res.Returnval = s.visible(ctx, res.Res.Returnval)
		return res
	}
	found := s.machines(ctx, func(vm *simulator.VirtualMachine) bool {
		return vm.Guest != nil && vm.Guest.IpAddress == req.Ip
	})
	return &methods.FindAllByIpBody{Res: &types.FindAllByIpResponse{Returnval: found}}
}

// FindByIp is the first of FindAllByIp.
func (s *strictSearch) FindByIp(ctx *simulator.Context, req *types.FindByIp) soap.HasFault {
	all := types.FindAllByIp(*req)
	found := s.FindAllByIp(ctx, &all).(*methods.FindAllByIpBody).Res.Returnval
	return &methods.FindByIpBody{Res: &types.FindByIpResponse{Returnval: first(found)}}
}

// FindByDatastorePath finds a machine by its configuration file.
func (s *strictSearch) FindByDatastorePath(
	ctx *simulator.Context, req *types.FindByDatastorePath,
) soap.HasFault {
	found := s.machines(ctx, func(vm *simulator.VirtualMachine) bool {
		dc := s.in.datacenterOf(vm)
		return vm.Config.Files.VmPathName == req.Path && dc != nil && dc.Self == req.Datacenter
	})
	return &methods.FindByDatastorePathBody{
		Res: &types.FindByDatastorePathResponse{Returnval: first(found)},
	}
}

// FindChild finds by the name as it is stored, with %, / and \ escaped.
func (s *strictSearch) FindChild(ctx *simulator.Context, req *types.FindChild) soap.HasFault {
	child := s.child(ctx, req.Entity, req.Name)
	return &methods.FindChildBody{Res: &types.FindChildResponse{Returnval: child}}
}

// FindByInventoryPath goes down from the root folder.
func (s *strictSearch) FindByInventoryPath(
	ctx *simulator.Context, req *types.FindByInventoryPath,
) soap.HasFault {
	body := &methods.FindByInventoryPathBody{Res: &types.FindByInventoryPathResponse{}}
	at := s.in.serviceInstance().Content.RootFolder
	for _, name := range strings.FieldsFunc(req.InventoryPath, func(c rune) bool { return c == '/' }) {
		next := s.child(ctx, at, name)
		if next == nil {
			return body
		}
		at = *next
	}
	body.Res.Returnval = &at
	return body
}

func (s *strictSearch) child(ctx *simulator.Context, parent moRef, name string) *moRef {
	for _, ref := range s.in.children(parent) {
		entity, ok := s.in.entity(ref)
		if ok && entityName(entity) == name && s.sees(ctx, ref) {
			return &ref
		}
	}
	return nil
}

// children are the objects directly below one. A folder is read in its lock: while a machine is
// created in it, the folder holds a machine that has no name yet. So this must not be called while
// the caller's method holds that lock, but from a task.
func (in *Instance) children(parent moRef) []moRef {
	object := in.registry().Get(parent)
	if object == nil {
		return nil
	}
	var refs []moRef
	ctx := in.context()
	ctx.WithLock(parent, func() {
		switch x := managed(object).Addr().Interface().(type) {
		case *mo.Datacenter:
			refs = []moRef{x.VmFolder, x.HostFolder, x.DatastoreFolder, x.NetworkFolder}
		case *mo.Folder:
			refs = append(refs, x.ChildEntity...)
		case *mo.StoragePod:
			refs = append(refs, x.ChildEntity...)
		case *mo.ComputeResource:
			refs = append(append(refs, x.Host...), *x.ResourcePool)
		case *mo.ClusterComputeResource:
			refs = append(append(refs, x.Host...), *x.ResourcePool)
		case *mo.ResourcePool:
			refs = append(append(refs, x.ResourcePool...), x.Vm...)
		case *mo.VirtualApp:
			refs = append(append(refs, x.ResourcePool.ResourcePool...), x.Vm...)
		}
	})
	return refs
}
