package main

import (
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// hardware is what device changes are checked against.
type hardware struct {
	in        *Instance
	dc        *simulator.Datacenter
	host      *simulator.HostSystem
	devices   object.VirtualDeviceList
	snapshots bool
}

func (in *Instance) hardwareOf(vm *simulator.VirtualMachine) hardware {
	h := hardware{
		in:        in,
		dc:        in.datacenterOf(vm),
		devices:   object.VirtualDeviceList(vm.Config.Hardware.Device),
		snapshots: vm.Snapshot != nil,
	}
	if vm.Runtime.Host != nil {
		h.host, _ = in.registry().Get(*vm.Runtime.Host).(*simulator.HostSystem)
	}
	return h
}

// The keys that vCenter gives to the first SCSI controller, disk and network card.
const (
	firstController = 1000
	firstDisk       = 2000
	firstCard       = 4000
)

func diskLabel(n int) string { return fmt.Sprintf("Hard disk %d", n) }

func cardLabel(n int) string { return fmt.Sprintf("Network adapter %d", n) }

// label names a new device the way vCenter does, by its number among its kind.
func (h hardware) label(device types.BaseVirtualDevice, added map[string]int) {
	var format func(int) string
	kind := "disk"
	switch device.(type) {
	case *types.VirtualDisk:
		format = diskLabel
	case types.BaseVirtualEthernetCard:
		format, kind = cardLabel, "card"
	default:
		return
	}
	if info := device.GetVirtualDevice().DeviceInfo; info != nil && info.GetDescription().Label != "" {
		return
	}
	n := added[kind] + 1
	for _, other := range h.devices {
		_, disk := other.(*types.VirtualDisk)
		_, card := other.(types.BaseVirtualEthernetCard)
		if (disk && kind == "disk") || (card && kind == "card") {
			n++
		}
	}
	added[kind]++
	device.GetVirtualDevice().DeviceInfo = &types.Description{Label: format(n)}
}

// check refuses changes that vCenter refuses, and on which the simulator panics or looks away. It
// also gives network cards the MAC addresses that vCenter gives them.
func (h hardware) check(changes []types.BaseVirtualDeviceConfigSpec) types.BaseMethodFault {
	added := map[int32]bool{}
	var adding object.VirtualDeviceList
	for _, change := range changes {
		if change != nil && change.GetVirtualDeviceConfigSpec().Device != nil {
			added[change.GetVirtualDeviceConfigSpec().Device.GetVirtualDevice().Key] = true
			adding = append(adding, change.GetVirtualDeviceConfigSpec().Device)
		}
	}
	labels := map[string]int{}
	for i, change := range changes {
		if fault := h.checkOne(int32(i), change, added, adding); fault != nil {
			return fault
		}
		if spec := change.GetVirtualDeviceConfigSpec(); spec.Operation == types.VirtualDeviceConfigSpecOperationAdd {
			h.label(spec.Device, labels)
		}
	}
	return nil
}

func invalidDevice(index int32, property string) types.BaseMethodFault {
	return &types.InvalidDeviceSpec{
		InvalidVmConfig: types.InvalidVmConfig{Property: property}, DeviceIndex: index,
	}
}

func (h hardware) checkOne(
	index int32, change types.BaseVirtualDeviceConfigSpec, added map[int32]bool,
	adding object.VirtualDeviceList,
) types.BaseMethodFault {
	if change == nil || change.GetVirtualDeviceConfigSpec().Device == nil {
		return invalidDevice(index, "virtualDeviceSpec.device")
	}
	spec := change.GetVirtualDeviceConfigSpec()
	device := spec.Device.GetVirtualDevice()
	old := h.devices.FindByKey(device.Key)
	adds := spec.Operation == types.VirtualDeviceConfigSpecOperationAdd
	if !adds && old == nil {
		return invalidDevice(index, "virtualDeviceSpec.device.key")
	}
	if spec.Operation == types.VirtualDeviceConfigSpecOperationRemove {
		return nil
	}
	switch x := spec.Device.(type) {
	case types.BaseVirtualEthernetCard:
		return h.checkCard(index, x.GetVirtualEthernetCard(), old)
	case *types.VirtualDisk:
		key := device.ControllerKey
		if h.devices.FindByKey(key) == nil && !added[key] {
			return invalidDevice(index, "virtualDeviceSpec.device.controllerKey")
		}
		if fault := h.checkDisk(index, x); fault != nil {
			return fault
		}
		if fault := h.checkUnits(index, x, adding); fault != nil {
			return fault
		}
		if adds && spec.FileOperation == "" {
			h.takeCapacity(x)
		}
		if was, ok := old.(*types.VirtualDisk); ok && !adds {
			return h.checkGrowth(index, was, x)
		}
	}
	return nil
}

func (h hardware) checkCard(
	index int32, card *types.VirtualEthernetCard, old types.BaseVirtualDevice,
) types.BaseMethodFault {
	if card.MacAddress == "" {
		if was, ok := old.(types.BaseVirtualEthernetCard); ok {
			card.MacAddress = was.GetVirtualEthernetCard().MacAddress
			card.AddressType = was.GetVirtualEthernetCard().AddressType
		} else {
			card.MacAddress = h.in.macs.take()
			card.AddressType = string(types.VirtualEthernetCardMacTypeAssigned)
		}
	}
	switch backing := card.Backing.(type) {
	case nil:
		if was, ok := old.(types.BaseVirtualEthernetCard); ok {
			card.Backing = was.GetVirtualEthernetCard().Backing
		} else if card.SubnetId == "" {
			return invalidDevice(index, "virtualDeviceSpec.device.backing")
		}
	case *types.VirtualEthernetCardNetworkBackingInfo:
		if backing.DeviceName == "" && backing.Network != nil {
			backing.DeviceName = h.in.nameOf(*backing.Network)
		}
		if !h.hasNetwork(backing.DeviceName) {
			return invalidDevice(index, "virtualDeviceSpec.device.backing")
		}
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		return h.checkPort(backing.Port)
	case *types.VirtualEthernetCardOpaqueNetworkBackingInfo:
		if !h.hasOpaque(backing) {
			return invalidDevice(index, "virtualDeviceSpec.device.backing")
		}
	}
	return nil
}

func (h hardware) hasOpaque(backing *types.VirtualEthernetCardOpaqueNetworkBackingInfo) bool {
	if h.dc == nil {
		return false
	}
	for _, ref := range h.dc.Network {
		network, ok := h.in.registry().Get(ref).(*mo.OpaqueNetwork)
		if !ok {
			continue
		}
		summary, ok := network.Summary.(*types.OpaqueNetworkSummary)
		if ok && summary.OpaqueNetworkId == backing.OpaqueNetworkId {
			return summary.OpaqueNetworkType == backing.OpaqueNetworkType
		}
	}
	return false
}

func (h hardware) hasNetwork(name string) bool {
	if h.dc == nil {
		return false
	}
	for _, ref := range h.dc.Network {
		if ref.Type == "Network" && h.in.nameOf(ref) == name {
			return true
		}
	}
	return false
}

// checkPort accepts a port group that exists and belongs to the switch.
func (h hardware) checkPort(port types.DistributedVirtualSwitchPortConnection) types.BaseMethodFault {
	if port.PortgroupKey == "" {
		return nil // a standalone port; the simulator looks at the switch
	}
	ref := moRef{Type: "DistributedVirtualPortgroup", Value: port.PortgroupKey}
	group, ok := h.in.registry().Get(ref).(*simulator.DistributedVirtualPortgroup)
	if !ok || h.in.hub.removed(ref) {
		return &types.InvalidArgument{
			InvalidProperty: "spec.deviceChange.device.port.portgroupKey",
		}
	}
	if of := group.Config.DistributedVirtualSwitch; of != nil {
		dvs, ok := h.in.registry().Get(*of).(*simulator.DistributedVirtualSwitch)
		if ok && dvs.Uuid != port.SwitchUuid {
			return &types.InvalidArgument{
				InvalidProperty: "spec.deviceChange.device.port.switchUuid",
			}
		}
	}
	return nil
}

// checkDisk accepts files on datastores that the host sees.
func (h hardware) checkDisk(index int32, disk *types.VirtualDisk) types.BaseMethodFault {
	file, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo)
	if !ok {
		return invalidDevice(index, "virtualDeviceSpec.device.backing")
	}
	info := file.GetVirtualDeviceFileBackingInfo()
	if info.FileName == "" {
		return nil // it goes beside the machine's own files
	}
	name, _, ok := splitDatastorePath(info.FileName)
	if !ok {
		return &types.InvalidDatastorePath{DatastorePath: info.FileName}
	}
	if name != "" && h.host != nil && h.in.datastoreNamed(name, h.host.Datastore) == nil {
		return &types.InvalidDatastorePath{DatastorePath: info.FileName}
	}
	return nil
}

// takeCapacity gives a disk that exists the size it has; a request need not know it.
func (h hardware) takeCapacity(disk *types.VirtualDisk) {
	file, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo)
	if !ok || h.dc == nil {
		return
	}
	ctx := h.in.context()
	name := file.GetVirtualDeviceFileBackingInfo().FileName
	if descriptor, _, fault := ctx.Map.FileManager().DiskDescriptor(ctx, &h.dc.Self, name); fault == nil {
		disk.CapacityInBytes = int64(descriptor.Capacity())
		disk.CapacityInKB = disk.CapacityInBytes / 1024
	}
}

// checkGrowth refuses to grow what has a parent: linked clones, and disks under a snapshot.
func (h hardware) checkGrowth(index int32, was, now *types.VirtualDisk) types.BaseMethodFault {
	grows := now.CapacityInBytes > was.CapacityInBytes || now.CapacityInKB > was.CapacityInKB
	if !grows || (!h.snapshots && parentOf(was) == "") {
		return nil
	}
	return &types.InvalidDeviceOperation{
		InvalidDeviceSpec: types.InvalidDeviceSpec{
			InvalidVmConfig: types.InvalidVmConfig{Property: "virtualDeviceSpec.device.capacityInKB"},
			DeviceIndex:     index,
		},
		BadOp: types.VirtualDeviceConfigSpecOperationEdit,
	}
}

// parentOf is the file that a disk is a child of, or "".
func parentOf(disk *types.VirtualDisk) string {
	switch backing := disk.Backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		if backing.Parent != nil {
			return backing.Parent.FileName
		}
	case *types.VirtualDiskSeSparseBackingInfo:
		if backing.Parent != nil {
			return backing.Parent.FileName
		}
	}
	return ""
}

// networkOf is the network behind a card's backing when it names one by reference.
func (in *Instance) networkOf(backing types.BaseVirtualDeviceBackingInfo) *moRef {
	switch b := backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return b.Network
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		if b.Port.PortgroupKey != "" {
			return &moRef{Type: "DistributedVirtualPortgroup", Value: b.Port.PortgroupKey}
		}
	}
	return nil
}
