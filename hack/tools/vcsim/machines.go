package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Machine is what GET /vms tells of one virtual machine or template.
type Machine struct {
	MoRef         string            `json:"moRef"`
	Name          string            `json:"name"`
	Path          string            `json:"path"`
	Folder        string            `json:"folder"` // moRef
	Datacenter    string            `json:"datacenter"`
	UUID          string            `json:"uuid"`
	InstanceUUID  string            `json:"instanceUuid"`
	Template      bool              `json:"template"`
	PowerState    string            `json:"powerState"`
	Host          string            `json:"host"` // name
	Pool          string            `json:"pool"` // moRef, empty for a template
	Datastores    []string          `json:"datastores"`
	CPUs          int32             `json:"cpus"`
	MemoryMB      int32             `json:"memoryMB"`
	Firmware      string            `json:"firmware"`
	GuestID       string            `json:"guestId"`
	Annotation    string            `json:"annotation"`
	ExtraConfig   map[string]string `json:"extraConfig"`
	Disks         []Disk            `json:"disks"`
	Cards         []Card            `json:"nics"`
	Snapshots     int               `json:"snapshots"`
	Policies      map[string]string `json:"policies"` // ids of storage policies, by "home" or label
	ToolsRunning  bool              `json:"toolsRunning"`
	GuestHostName string            `json:"guestHostName"`
	GuestAddress  string            `json:"guestIpAddress"`
	Timeline      Timeline          `json:"timeline"`
	FirstBoot     FirstBoot         `json:"firstBoot"`
}

// Disk is one virtual disk of a machine.
type Disk struct {
	Key           int32  `json:"key"`
	Label         string `json:"label"`
	File          string `json:"file"`
	Parent        string `json:"parent,omitempty"`
	CapacityBytes int64  `json:"capacityBytes"`
}

// Card is one network card of a machine.
type Card struct {
	Key       int32    `json:"key"`
	Label     string   `json:"label"`
	MAC       string   `json:"mac"`
	Network   string   `json:"network"`
	Connected bool     `json:"connected"`
	Addresses []string `json:"addresses"`
}

// listMachines describes all machines, by moRef.
func (in *Instance) listMachines() []Machine {
	machines := []Machine{}
	for _, vm := range in.machines() {
		machines = append(machines, in.describe(vm))
	}
	return machines
}

func (in *Instance) describe(vm *simulator.VirtualMachine) Machine {
	var m Machine
	ctx := in.context()
	ctx.WithLock(vm, func() {
		m = Machine{
			MoRef:         vm.Self.Value,
			Name:          vm.Name,
			Folder:        vm.Parent.Value,
			UUID:          vm.Config.Uuid,
			InstanceUUID:  vm.Config.InstanceUuid,
			Template:      vm.Config.Template,
			PowerState:    string(vm.Runtime.PowerState),
			CPUs:          vm.Config.Hardware.NumCPU,
			MemoryMB:      vm.Config.Hardware.MemoryMB,
			Firmware:      vm.Config.Firmware,
			GuestID:       vm.Config.GuestId,
			Annotation:    vm.Config.Annotation,
			ExtraConfig:   map[string]string{},
			Disks:         in.disks(vm),
			Cards:         in.cards(vm),
			Snapshots:     countSnapshots(vm),
			ToolsRunning:  vm.Guest.ToolsRunningStatus == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning),
			GuestHostName: vm.Guest.HostName,
			GuestAddress:  vm.Guest.IpAddress,
		}
		if vm.Runtime.Host != nil {
			m.Host = in.nameOf(*vm.Runtime.Host)
		}
		if vm.ResourcePool != nil {
			m.Pool = vm.ResourcePool.Value
		}
		for _, ref := range vm.Datastore {
			m.Datastores = append(m.Datastores, in.nameOf(ref))
		}
		for _, option := range vm.Config.ExtraConfig {
			m.ExtraConfig[option.GetOptionValue().Key] = fmt.Sprint(option.GetOptionValue().Value)
		}
	})
	m.Path = in.pathOf(vm)
	if dc := in.datacenterOf(vm); dc != nil {
		m.Datacenter = dc.Name
	}
	m.Policies = in.policies.of(vm.Self.Value)
	m.Timeline = in.guests.timeline(vm.Self)
	m.FirstBoot = in.guests.firstBoot(vm.Self)
	return m
}

func (in *Instance) disks(vm *simulator.VirtualMachine) []Disk {
	list := object.VirtualDeviceList(vm.Config.Hardware.Device)
	disks := []Disk{}
	for _, device := range list.SelectByType((*types.VirtualDisk)(nil)) {
		disk := device.(*types.VirtualDisk)
		d := Disk{Key: disk.Key, Label: list.Name(disk), CapacityBytes: disk.CapacityInBytes}
		if info := disk.DeviceInfo; info != nil {
			d.Label = info.GetDescription().Label
		}
		if file, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
			d.File = file.GetVirtualDeviceFileBackingInfo().FileName
		}
		if flat, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok && flat.Parent != nil {
			d.Parent = flat.Parent.FileName
		}
		disks = append(disks, d)
	}
	return disks
}

func (in *Instance) cards(vm *simulator.VirtualMachine) []Card {
	cards := []Card{}
	for _, card := range ethernetCards(vm) {
		c := Card{
			Key:       card.Key,
			MAC:       card.MacAddress,
			Network:   in.networkName(card.Backing),
			Connected: card.Connectable != nil && card.Connectable.Connected,
			Addresses: []string{},
		}
		if info := card.DeviceInfo; info != nil {
			c.Label = info.GetDescription().Label
		}
		for _, nic := range vm.Guest.Net {
			if nic.DeviceConfigId == card.Key {
				c.Addresses = append(c.Addresses, nic.IpAddress...)
			}
		}
		cards = append(cards, c)
	}
	return cards
}

func countSnapshots(vm *simulator.VirtualMachine) int {
	if vm.Snapshot == nil {
		return 0
	}
	var count func([]types.VirtualMachineSnapshotTree) int
	count = func(tree []types.VirtualMachineSnapshotTree) int {
		n := len(tree)
		for _, node := range tree {
			n += count(node.ChildSnapshotList)
		}
		return n
	}
	return count(vm.Snapshot.RootSnapshotList)
}

// Digest is a fingerprint of everything that must not change behind a user's back.
type Digest struct {
	Digest   string   `json:"digest"`
	Machines []string `json:"machines"` // paths
	Folders  []string `json:"folders"`  // paths
	Files    []string `json:"files"`    // in the datastores
}

// digest leaves out what changes by itself: what guests report, hosts, times.
func (in *Instance) digest() Digest {
	d := Digest{Machines: []string{}, Folders: []string{}, Files: in.files()}
	sum := sha256.New()
	machines := in.listMachines()
	for i := range machines {
		m := &machines[i]
		d.Machines = append(d.Machines, m.Path)
		m.Host, m.ToolsRunning, m.GuestHostName, m.GuestAddress = "", false, "", ""
		m.Timeline = Timeline{}
		for j := range m.Cards {
			m.Cards[j].Addresses = nil
		}
	}
	for _, kind := range []string{"Folder", "ResourcePool", "ClusterComputeResource", "StoragePod"} {
		for _, entity := range in.registry().All(kind) {
			if !in.hub.removed(entity.Reference()) {
				d.Folders = append(d.Folders, in.pathOf(entity))
			}
		}
	}
	slices.Sort(d.Machines)
	slices.Sort(d.Folders)
	encoder := json.NewEncoder(sum)
	for _, part := range []any{machines, d.Folders, d.Files} {
		_ = encoder.Encode(part) // a hash does not fail
	}
	d.Digest = hex.EncodeToString(sum.Sum(nil))
	return d
}
