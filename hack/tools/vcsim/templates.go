package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

const templateFolder = "templates"

// TemplateShape is what the templates made at start look like.
type TemplateShape struct {
	DiskGiB  int64
	Firmware string // bios | efi
	GuestID  string
	InFolder bool // in the folder "templates" of each datacenter, else in its top folder
}

// createTemplates makes one template of each name in each datacenter, off, with a snapshot to link
// clones to.
func (in *Instance) createTemplates() error {
	if len(in.options.Templates) == 0 {
		return nil
	}
	for _, entity := range in.registry().All("Datacenter") {
		dc, ok := entity.(*simulator.Datacenter)
		if !ok {
			continue
		}
		folder, err := in.templateFolder(dc)
		if err != nil {
			return err
		}
		for _, name := range in.options.Templates {
			if err := in.createTemplate(dc, folder, name); err != nil {
				return fmt.Errorf("%s in %s: %w", name, dc.Name, err)
			}
		}
	}
	return nil
}

func (in *Instance) templateFolder(dc *simulator.Datacenter) (*object.Folder, error) {
	top := object.NewFolder(in.client(), dc.VmFolder)
	if !in.options.Template.InFolder {
		return top, nil
	}
	return top.CreateFolder(in.context(), templateFolder)
}

// createTemplate goes through the API, like an administrator.
func (in *Instance) createTemplate(dc *simulator.Datacenter, folder *object.Folder, name string) error {
	ctx, client := in.context(), in.client()
	pool, datastore, err := in.firstPlace(dc)
	if err != nil {
		return err
	}
	var devices object.VirtualDeviceList
	scsi, err := devices.CreateSCSIController("pvscsi")
	if err != nil {
		return err
	}
	scsi.GetVirtualDevice().Key = firstController
	devices = append(devices, scsi)
	disk := devices.CreateDisk(scsi.(types.BaseVirtualController), datastore.Self, "")
	disk.Key = firstDisk
	disk.DeviceInfo = &types.Description{Label: diskLabel(1)}
	disk.CapacityInKB = in.options.Template.DiskGiB * 1024 * 1024
	disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).ThinProvisioned = types.NewBool(true)
	devices = append(devices, disk)
	card, err := devices.CreateEthernetCard("vmxnet3", in.firstNetwork(dc))
	if err != nil {
		return err
	}
	card.GetVirtualDevice().Key = firstCard
	card.GetVirtualDevice().DeviceInfo = &types.Description{Label: cardLabel(1)}
	devices = append(devices, card)
	spec := types.VirtualMachineConfigSpec{
		Name:         name,
		GuestId:      in.options.Template.GuestID,
		Firmware:     in.options.Template.Firmware,
		NumCPUs:      1,
		MemoryMB:     1024,
		Uuid:         in.derivedUUID("bios", dc.Self.Value+"/"+name),
		InstanceUuid: in.derivedUUID("instance", dc.Self.Value+"/"+name),
		Files:        &types.VirtualMachineFileInfo{VmPathName: "[" + datastore.Name + "]"},
	}
	if spec.DeviceChange, err = devices.ConfigSpec(types.VirtualDeviceConfigSpecOperationAdd); err != nil {
		return err
	}
	task, err := folder.CreateVM(ctx, spec, object.NewResourcePool(client, pool), nil)
	if err != nil {
		return err
	}
	result, err := in.finished(task.Reference())
	if err != nil {
		return err
	}
	vm := object.NewVirtualMachine(client, result.(moRef))
	if task, err = vm.CreateSnapshot(ctx, "base", "what clones are linked to", false, false); err != nil {
		return err
	}
	if _, err := in.finished(task.Reference()); err != nil {
		return err
	}
	return vm.MarkAsTemplate(ctx)
}

// firstPlace is a resource pool and a datastore of the datacenter.
func (in *Instance) firstPlace(dc *simulator.Datacenter) (moRef, *simulator.Datastore, error) {
	if len(dc.Datastore) == 0 {
		return moRef{}, nil, fmt.Errorf("there is no datastore")
	}
	datastore, ok := in.registry().Get(dc.Datastore[0]).(*simulator.Datastore)
	if !ok {
		return moRef{}, nil, fmt.Errorf("%s is no datastore", dc.Datastore[0])
	}
	for _, kind := range []string{"ClusterComputeResource", "ComputeResource"} {
		for _, entity := range in.registry().All(kind) {
			if in.datacenterOf(entity) != dc {
				continue
			}
			switch x := entity.(type) {
			case *simulator.ClusterComputeResource:
				return *x.ResourcePool, datastore, nil
			case *mo.ComputeResource:
				return *x.ResourcePool, datastore, nil
			}
		}
	}
	return moRef{}, nil, fmt.Errorf("there is no cluster or host")
}

// firstNetwork is a port group if there is one, else the standard network.
func (in *Instance) firstNetwork(dc *simulator.Datacenter) types.BaseVirtualDeviceBackingInfo {
	for _, ref := range dc.Network {
		group, ok := in.registry().Get(ref).(*simulator.DistributedVirtualPortgroup)
		if !ok || group.Config.DistributedVirtualSwitch == nil || isUplink(group) {
			continue
		}
		dvs, ok := in.registry().Get(*group.Config.DistributedVirtualSwitch).(*simulator.DistributedVirtualSwitch)
		if ok {
			return &types.VirtualEthernetCardDistributedVirtualPortBackingInfo{
				Port: types.DistributedVirtualSwitchPortConnection{
					PortgroupKey: group.Key, SwitchUuid: dvs.Uuid,
				},
			}
		}
	}
	return &types.VirtualEthernetCardNetworkBackingInfo{
		VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "VM Network"},
	}
}

func isUplink(group *simulator.DistributedVirtualPortgroup) bool {
	return strings.Contains(group.Name, "-DVUplinks")
}

// client calls the simulator in this process, as nobody's account.
func (in *Instance) client() *vim25.Client {
	client, err := vim25.NewClient(context.Background(), in.service)
	if err != nil {
		panic(err) // the simulator has no reason to refuse its own process
	}
	return client
}

// finished waits for a task and turns its fault into an error.
func (in *Instance) finished(task moRef) (types.AnyType, error) {
	result, fault := in.hub.wait(task)
	if fault != nil {
		return nil, fmt.Errorf("%T", fault)
	}
	return result, nil
}

func (in *Instance) defaultDevices() object.VirtualDeviceList { return esx.VirtualDevice }
