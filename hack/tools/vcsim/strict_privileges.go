package main

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// need is a privilege that a call takes on an object.
type need struct {
	on        moRef
	privilege string
}

// takes lists the methods that take one privilege on the object they are called on.
// Source: "Required Privileges for Common Tasks", vSphere Security, and the API reference.
var takes = map[string]string{
	"PowerOnVM_Task":                  "VirtualMachine.Interact.PowerOn",
	"PowerOffVM_Task":                 "VirtualMachine.Interact.PowerOff",
	"ShutdownGuest":                   "VirtualMachine.Interact.PowerOff",
	"SuspendVM_Task":                  "VirtualMachine.Interact.Suspend",
	"ResetVM_Task":                    "VirtualMachine.Interact.Reset",
	"RebootGuest":                     "VirtualMachine.Interact.Reset",
	"UpgradeVM_Task":                  "VirtualMachine.Config.UpgradeVirtualHardware",
	"UnregisterVM":                    "VirtualMachine.Inventory.Unregister",
	"MarkAsTemplate":                  "VirtualMachine.Provisioning.MarkAsTemplate",
	"MarkAsVirtualMachine":            "VirtualMachine.Provisioning.MarkAsVM",
	"CustomizeVM_Task":                "VirtualMachine.Provisioning.Customize",
	"CreateSnapshot_Task":             "VirtualMachine.State.CreateSnapshot",
	"CreateSnapshotEx_Task":           "VirtualMachine.State.CreateSnapshot",
	"RemoveAllSnapshots_Task":         "VirtualMachine.State.RemoveSnapshot",
	"RemoveSnapshot_Task":             "VirtualMachine.State.RemoveSnapshot",
	"RevertToSnapshot_Task":           "VirtualMachine.State.RevertToSnapshot",
	"RevertToCurrentSnapshot_Task":    "VirtualMachine.State.RevertToSnapshot",
	"AttachDisk_Task":                 "VirtualMachine.Config.AddExistingDisk",
	"DetachDisk_Task":                 "VirtualMachine.Config.RemoveDisk",
	"CreateFolder":                    "Folder.Create",
	"CreateResourcePool":              "Resource.CreatePool",
	"DestroyResourcePool":             "Resource.DeletePool",
	"ReconfigureComputeResource_Task": "Host.Inventory.EditCluster",
	"SessionIsActive":                 "Sessions.ValidateSession",
	"TerminateSession":                "Sessions.TerminateSession",
}

// needs are the privileges that a call takes.
func (in *Instance) needs(method *simulator.Method) []need {
	on := plain(method.This)
	switch body := method.Body.(type) {
	case *types.CloneVM_Task:
		return in.cloneNeeds(on, body)
	case *types.CreateVM_Task:
		needs := []need{{on, "VirtualMachine.Inventory.Create"}, {body.Pool, "Resource.AssignVMToPool"}}
		return append(needs, in.deviceNeeds(on, body.Config.DeviceChange)...)
	case *types.ReconfigVM_Task:
		return in.reconfigureNeeds(on, &body.Spec)
	case *types.RelocateVM_Task:
		if body.Spec.Folder != nil {
			return []need{{on, "Resource.ColdMigrate"}, {*body.Spec.Folder, "VirtualMachine.Inventory.Move"}}
		}
		return []need{{on, "Resource.ColdMigrate"}}
	case *types.MoveIntoFolder_Task:
		needs := []need{{on, "VirtualMachine.Inventory.Move"}}
		for _, ref := range body.List {
			needs = append(needs, need{ref, "VirtualMachine.Inventory.Move"})
		}
		return needs
	case *types.Destroy_Task:
		return []need{{on, byType(on, "VirtualMachine.Inventory.Delete", "Folder.Delete")}}
	case *types.ImportVApp:
		needs := []need{{on, "VApp.Import"}}
		if body.Folder != nil {
			needs = append(needs, need{*body.Folder, "VirtualMachine.Inventory.Create"})
		}
		return needs
	case *types.SetField:
		return []need{{body.Entity, "Global.SetCustomField"}}
	case *types.AddCustomFieldDef:
		return []need{{in.serviceInstance().Content.RootFolder, "Global.ManageCustomFields"}}
	case *types.Rename_Task:
		return []need{{on, byType(on, "VirtualMachine.Config.Rename", "Folder.Rename")}}
	}
	if privilege, ok := takes[method.Name]; ok {
		if on.Type == "SessionManager" {
			on = in.serviceInstance().Content.RootFolder
		}
		return []need{{on, privilege}}
	}
	return nil
}

func byType(on moRef, machine, folder string) string {
	if on.Type == "VirtualMachine" {
		return machine
	}
	return folder
}

func (in *Instance) cloneNeeds(source moRef, body *types.CloneVM_Task) []need {
	privilege := "VirtualMachine.Provisioning.Clone"
	if vm, ok := in.registry().Get(source).(*simulator.VirtualMachine); ok && vm.Config.Template {
		privilege = "VirtualMachine.Provisioning.DeployTemplate"
		if body.Spec.Template {
			privilege = "VirtualMachine.Provisioning.CloneTemplate"
		}
	}
	needs := []need{{source, privilege}, {body.Folder, "VirtualMachine.Inventory.CreateFromExisting"}}
	location := body.Spec.Location
	if location.Pool != nil {
		needs = append(needs, need{*location.Pool, "Resource.AssignVMToPool"})
	}
	if location.Datastore != nil {
		needs = append(needs, need{*location.Datastore, "Datastore.AllocateSpace"})
	}
	if body.Spec.PowerOn {
		needs = append(needs, need{body.Folder, "VirtualMachine.Interact.PowerOn"})
	}
	if body.Spec.Customization != nil {
		needs = append(needs, need{source, "VirtualMachine.Provisioning.Customize"})
	}
	needs = append(needs, in.deviceNeeds(body.Folder, location.DeviceChange)...)
	if config := body.Spec.Config; config != nil {
		needs = append(needs, in.reconfigureNeeds(body.Folder, config)...)
	}
	return needs
}

func (in *Instance) reconfigureNeeds(on moRef, spec *types.VirtualMachineConfigSpec) []need {
	var needs []need
	add := func(changed bool, privilege string) {
		if changed {
			needs = append(needs, need{on, privilege})
		}
	}
	add(spec.Name != "" && on.Type == "VirtualMachine", "VirtualMachine.Config.Rename")
	add(spec.NumCPUs != 0 || spec.NumCoresPerSocket != nil, "VirtualMachine.Config.CPUCount")
	add(spec.MemoryMB != 0, "VirtualMachine.Config.Memory")
	add(spec.CpuAllocation != nil || spec.MemoryAllocation != nil ||
		spec.MemoryReservationLockedToMax != nil, "VirtualMachine.Config.Resource")
	add(len(spec.ExtraConfig) > 0, "VirtualMachine.Config.AdvancedConfig")
	add(spec.Annotation != "", "VirtualMachine.Config.Annotation")
	add(spec.Firmware != "" || spec.BootOptions != nil || spec.GuestId != "" || spec.Flags != nil ||
		spec.CpuHotAddEnabled != nil || spec.MemoryHotAddEnabled != nil ||
		spec.NestedHVEnabled != nil || spec.Uuid != "" ||
		spec.InstanceUuid != "", "VirtualMachine.Config.Settings")
	return append(needs, in.deviceNeeds(on, spec.DeviceChange)...)
}

func (in *Instance) deviceNeeds(on moRef, changes []types.BaseVirtualDeviceConfigSpec) []need {
	var needs []need
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		needs = append(needs, need{on, devicePrivilege(spec)})
		if card, ok := spec.Device.(types.BaseVirtualEthernetCard); ok {
			if network := in.networkOf(card.GetVirtualEthernetCard().Backing); network != nil {
				needs = append(needs, need{*network, "Network.Assign"})
			}
		}
	}
	return needs
}

func devicePrivilege(spec *types.VirtualDeviceConfigSpec) string {
	_, disk := spec.Device.(*types.VirtualDisk)
	switch {
	case disk && spec.Operation == types.VirtualDeviceConfigSpecOperationRemove:
		return "VirtualMachine.Config.RemoveDisk"
	case disk && spec.Operation == types.VirtualDeviceConfigSpecOperationEdit:
		return "VirtualMachine.Config.DiskExtend"
	case disk && spec.FileOperation == "":
		return "VirtualMachine.Config.AddExistingDisk"
	case disk:
		return "VirtualMachine.Config.AddNewDisk"
	case spec.Operation == types.VirtualDeviceConfigSpecOperationEdit:
		return "VirtualMachine.Config.EditDevice"
	}
	return "VirtualMachine.Config.AddRemoveDevice"
}
