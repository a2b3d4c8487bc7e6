package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// strictFolder stands in front of a folder.
type strictFolder struct {
	*simulator.Folder

	in *Instance
}

// CreateVMTask refuses names that are taken, and places and devices that cannot be had.
func (f *strictFolder) CreateVMTask(ctx *simulator.Context, req *types.CreateVM_Task) soap.HasFault {
	account := accountOf(ctx)
	release, other := f.in.claimName(f.Self, req.Config.Name)
	run := func(c *simulator.Context) (types.AnyType, types.BaseMethodFault) {
		if release == nil {
			return nil, f.in.duplicate(f.Self, req.Config.Name, other)
		}
		defer release()
		return f.create(c, account, req)
	}
	task := f.in.startTask(ctx, f.Self, "CreateVM_Task", run)
	return &methods.CreateVM_TaskBody{Res: &types.CreateVM_TaskResponse{Returnval: task}}
}

func (f *strictFolder) create(
	ctx *simulator.Context, account string, req *types.CreateVM_Task,
) (types.AnyType, types.BaseMethodFault) {
	config := req.Config
	switch {
	case !slices.Contains(f.ChildType, "VirtualMachine"):
		return nil, &types.NotSupported{}
	case config.Name == "":
		return nil, &types.InvalidVmConfig{Property: "configSpec.name"}
	case config.Files == nil || config.Files.VmPathName == "":
		return nil, &types.InvalidVmConfig{Property: "configSpec.files.vmPathName"}
	case f.in.sibling(f.Self, config.Name) != nil:
		return nil, f.in.duplicate(f.Self, config.Name, nil)
	}
	p := place{folder: f.Folder, pool: req.Pool, dc: f.in.datacenterOf(f.Folder)}
	name, _, _ := splitDatastorePath(config.Files.VmPathName)
	if p.dc != nil {
		p.datastore = f.in.datastoreNamed(name, p.dc.Datastore)
	}
	if p.datastore == nil {
		return nil, &types.InvalidDatastorePath{DatastorePath: config.Files.VmPathName}
	}
	host, fault := f.in.placeHost(req.Pool, req.Host, p.datastore)
	if fault != nil {
		return nil, fault
	}
	p.host = host
	id, release := f.in.claimInstanceUUID(config.InstanceUuid, account, f.Self.Value+"/"+config.Name)
	defer release()
	config.InstanceUuid = id
	if config.Uuid == "" {
		config.Uuid = f.in.derivedUUID("bios", id)
	}
	vm, fault := f.in.createMachine(ctx, p, config.Name, config)
	if fault != nil {
		return nil, fault
	}
	return vm.Self, nil
}

// MoveIntoFolderTask refuses names that are taken.
func (f *strictFolder) MoveIntoFolderTask(
	ctx *simulator.Context, req *types.MoveIntoFolder_Task,
) soap.HasFault {
	run := func(c *simulator.Context) (types.AnyType, types.BaseMethodFault) {
		for _, ref := range req.List {
			name := f.in.nameOf(ref)
			if other := f.in.sibling(f.Self, name); other != nil && *other != ref {
				return nil, f.in.duplicate(f.Self, name, nil)
			}
		}
		res := f.Folder.MoveIntoFolderTask(c, req).(*methods.MoveIntoFolder_TaskBody)
		return f.in.hub.wait(res.Res.Returnval)
	}
	task := f.in.startTask(ctx, f.Self, "MoveIntoFolder_Task", run)
	return &methods.MoveIntoFolder_TaskBody{Res: &types.MoveIntoFolder_TaskResponse{Returnval: task}}
}

// DestroyTask destroys what is in the folder, as vCenter does; the simulator loses the machines.
func (f *strictFolder) DestroyTask(ctx *simulator.Context, _ *types.Destroy_Task) soap.HasFault {
	run := func(c *simulator.Context) (types.AnyType, types.BaseMethodFault) {
		return nil, f.in.removeFolder(c, f.Folder)
	}
	task := f.in.startTask(ctx, f.Self, "Destroy_Task", run)
	return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{Returnval: task}}
}

func (in *Instance) removeFolder(ctx *simulator.Context, folder *simulator.Folder) types.BaseMethodFault {
	parent, ok := in.registry().Get(*folder.Parent).(*simulator.Folder)
	if !ok {
		return &types.NotSupported{} // the folders that come with a datacenter
	}
	for _, ref := range in.children(folder.Self) {
		switch child := in.registry().Get(ref).(type) {
		case *simulator.VirtualMachine:
			if fault := in.removeMachine(ctx, child); fault != nil {
				return fault
			}
		case *simulator.Folder:
			if fault := in.removeFolder(ctx, child); fault != nil {
				return fault
			}
		default:
			return &types.NotSupported{}
		}
	}
	ctx.Map.RemoveReference(ctx, parent, &parent.ChildEntity, folder.Self)
	ctx.Map.Remove(ctx, folder.Self)
	return nil
}
