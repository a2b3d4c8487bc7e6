package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// strictCluster stands in front of a cluster.
type strictCluster struct {
	*simulator.ClusterComputeResource

	in *Instance
}

// ReconfigureComputeResourceTask refuses groups and rules that a vCenter refuses.
func (c *strictCluster) ReconfigureComputeResourceTask(
	ctx *simulator.Context, req *types.ReconfigureComputeResource_Task,
) soap.HasFault {
	run := func(own *simulator.Context) (types.AnyType, types.BaseMethodFault) {
		if spec, ok := req.Spec.(*types.ClusterConfigSpecEx); ok {
			if fault := c.check(spec); fault != nil {
				return nil, fault
			}
		}
		res := c.ClusterComputeResource.ReconfigureComputeResourceTask(own, req)
		return c.in.hub.wait(res.(*methods.ReconfigureComputeResource_TaskBody).Res.Returnval)
	}
	task := c.in.startTask(ctx, c.Self, "ReconfigureComputeResource_Task", run)
	return &methods.ReconfigureComputeResource_TaskBody{
		Res: &types.ReconfigureComputeResource_TaskResponse{Returnval: task},
	}
}

func (c *strictCluster) check(spec *types.ClusterConfigSpecEx) types.BaseMethodFault {
	config := c.config()
	groups := map[string]bool{}
	for _, group := range config.Group {
		groups[group.GetClusterGroupInfo().Name] = true
	}
	for _, change := range spec.GroupSpec {
		if change.Operation == types.ArrayUpdateOperationRemove {
			continue
		}
		info := change.Info.GetClusterGroupInfo()
		groups[info.Name] = true
		group, ok := change.Info.(*types.ClusterVmGroup)
		if ok && !c.areHere(group.Vm) {
			return &types.InvalidArgument{InvalidProperty: "spec.groupSpec.info.vm"}
		}
	}
	for _, change := range spec.RulesSpec {
		if change.Operation == types.ArrayUpdateOperationRemove {
			continue
		}
		if fault := c.checkRule(config, change, groups); fault != nil {
			return fault
		}
	}
	return nil
}

func (c *strictCluster) checkRule(
	config *types.ClusterConfigInfoEx, change types.ClusterRuleSpec, groups map[string]bool,
) types.BaseMethodFault {
	info := change.Info.GetClusterRuleInfo()
	if change.Operation == types.ArrayUpdateOperationEdit {
		known := slices.ContainsFunc(config.Rule, func(rule types.BaseClusterRuleInfo) bool {
			other := rule.GetClusterRuleInfo()
			return other.Key == info.Key && other.Name == info.Name
		})
		if !known {
			return &types.InvalidArgument{InvalidProperty: "spec.rulesSpec.info.key"}
		}
	}
	switch rule := change.Info.(type) {
	case *types.ClusterAntiAffinityRuleSpec:
		if len(rule.Vm) < 2 || !c.areHere(rule.Vm) {
			return &types.InvalidArgument{InvalidProperty: "spec.rulesSpec.info.vm"}
		}
	case *types.ClusterVmHostRuleInfo:
		if !groups[rule.VmGroupName] || !groups[rule.AffineHostGroupName] {
			return &types.InvalidArgument{InvalidProperty: "spec.rulesSpec.info.vmGroupName"}
		}
	}
	return nil
}

func (c *strictCluster) config() *types.ClusterConfigInfoEx {
	return c.ConfigurationEx.(*types.ClusterConfigInfoEx)
}

// areHere says whether all these machines are in the cluster, each named once.
func (c *strictCluster) areHere(machines []moRef) bool {
	seen := map[moRef]bool{}
	for _, ref := range machines {
		vm, ok := c.in.registry().Get(plain(ref)).(*simulator.VirtualMachine)
		if !ok || seen[ref] || vm.Runtime.Host == nil {
			return false
		}
		seen[ref] = true
		host, ok := c.in.registry().Get(*vm.Runtime.Host).(*simulator.HostSystem)
		if !ok || host.Parent == nil || *host.Parent != c.Self {
			return false
		}
	}
	return true
}

// leaveGroups takes a machine that is gone out of the groups and rules of all clusters, as vCenter
// does.
func (in *Instance) leaveGroups(machine moRef) {
	is := func(ref moRef) bool { return plain(ref) == plain(machine) }
	ctx := in.context()
	for _, entity := range in.registry().All("ClusterComputeResource") {
		cluster := entity.(*simulator.ClusterComputeResource)
		ctx.WithLock(cluster, func() {
			config := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
			for _, group := range config.Group {
				if vms, ok := group.(*types.ClusterVmGroup); ok {
					vms.Vm = slices.DeleteFunc(slices.Clone(vms.Vm), is)
				}
			}
			for _, rule := range config.Rule {
				if apart, ok := rule.(*types.ClusterAntiAffinityRuleSpec); ok {
					apart.Vm = slices.DeleteFunc(slices.Clone(apart.Vm), is)
				}
			}
		})
	}
}
