package main

import (
	"strings"

	"github.com/vmware/govmomi/ovf"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// strictOvf stands in front of the OVF manager, which panics on descriptors that lack something.
type strictOvf struct {
	*simulator.OvfManager

	in *Instance
}

// CreateImportSpec reports a descriptor that cannot be used in its result, as vCenter does.
func (m *strictOvf) CreateImportSpec(ctx *simulator.Context, req *types.CreateImportSpec) soap.HasFault {
	if _, ok := m.in.registry().Get(req.Datastore).(*simulator.Datastore); !ok {
		return faulty(&types.InvalidArgument{InvalidProperty: "datastore"})
	}
	if _, ok := m.in.registry().Get(req.ResourcePool).(*simulator.ResourcePool); !ok {
		return faulty(&types.InvalidArgument{InvalidProperty: "resourcePool"})
	}
	envelope, err := ovf.Unmarshal(strings.NewReader(req.OvfDescriptor))
	if err != nil {
		return unusable(&types.OvfInvalidPackage{})
	}
	if fault := unusableOVF(envelope); fault != nil {
		return unusable(fault)
	}
	return m.OvfManager.CreateImportSpec(ctx, req)
}

func unusable(fault types.BaseMethodFault) soap.HasFault {
	body := &methods.CreateImportSpecBody{Res: &types.CreateImportSpecResponse{}}
	body.Res.Returnval.Error = []types.LocalizedMethodFault{{Fault: fault}}
	return body
}

func unusableOVF(envelope *ovf.Envelope) types.BaseMethodFault {
	system := envelope.VirtualSystem
	if system == nil || len(system.VirtualHardware) == 0 || system.VirtualHardware[0].System == nil {
		return &types.OvfMissingHardware{Name: "VirtualHardwareSection"}
	}
	parents := map[string]bool{}
	for _, item := range system.VirtualHardware[0].Item {
		parents[item.InstanceID] = true
	}
	for _, item := range system.VirtualHardware[0].Item {
		switch {
		case item.ResourceType == nil:
			return &types.OvfInvalidPackage{}
		case (*item.ResourceType == 3 || *item.ResourceType == 4) && item.VirtualQuantity == nil:
			return &types.OvfInvalidPackage{}
		case *item.ResourceType == 15 && (item.Parent == nil || !parents[*item.Parent]):
			return &types.OvfInvalidPackage{}
		case *item.ResourceType == 17 && !usableDisk(envelope, item, parents):
			return &types.OvfInvalidPackage{}
		}
	}
	return nil
}

func usableDisk(
	envelope *ovf.Envelope, item ovf.ResourceAllocationSettingData, parents map[string]bool,
) bool {
	if item.Parent == nil || !parents[*item.Parent] || len(item.HostResource) == 0 || envelope.Disk == nil {
		return false
	}
	for _, disk := range envelope.Disk.Disks {
		if strings.HasSuffix(item.HostResource[0], disk.DiskID) {
			return disk.FileRef != nil || len(envelope.References) == 0
		}
	}
	return false
}

// strictPool stands in front of a resource pool.
type strictPool struct {
	*simulator.ResourcePool

	in *Instance
}

// ImportVApp checks what the simulator trusts in.
func (p *strictPool) ImportVApp(ctx *simulator.Context, req *types.ImportVApp) soap.HasFault {
	spec, ok := req.Spec.(*types.VirtualMachineImportSpec)
	if !ok {
		return p.ResourcePool.ImportVApp(ctx, req)
	}
	dc := p.in.datacenterOf(p.ResourcePool)
	folder := dc.VmFolder
	if req.Folder != nil {
		folder = *req.Folder
	}
	if _, ok := p.in.registry().Get(folder).(*simulator.Folder); !ok {
		return faulty(&types.InvalidArgument{InvalidProperty: "folder"})
	}
	config := &spec.ConfigSpec
	if p.in.sibling(folder, config.Name) != nil {
		return faulty(p.in.duplicate(folder, config.Name, nil))
	}
	if config.Files == nil {
		return faulty(&types.InvalidArgument{InvalidProperty: "spec.configSpec.files"})
	}
	name, _, _ := splitDatastorePath(config.Files.VmPathName)
	datastore := p.in.datastoreNamed(name, dc.Datastore)
	if datastore == nil {
		return faulty(&types.InvalidDatastorePath{DatastorePath: config.Files.VmPathName})
	}
	host, fault := p.in.placeHost(p.Self, req.Host, datastore)
	if fault != nil {
		return faulty(fault)
	}
	h := hardware{in: p.in, dc: dc, host: host, devices: p.in.defaultDevices()}
	if fault := h.check(config.DeviceChange); fault != nil {
		return faulty(fault)
	}
	req.Host = &host.Self
	id, release := p.in.claimInstanceUUID(config.InstanceUuid, accountOf(ctx), folder.Value+"/"+config.Name)
	defer release()
	config.InstanceUuid = id
	if config.Uuid == "" {
		config.Uuid = p.in.derivedUUID("bios", id)
	}
	answer := p.ResourcePool.ImportVApp(ctx, req)
	if body, ok := answer.(*methods.ImportVAppBody); ok && body.Res != nil {
		p.in.leases.opened(ctx, body.Res.Returnval)
	}
	return answer
}
