package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// watch is a client's list view with a filter over it.
type watch struct {
	*lab

	client    *vim25.Client
	view      moRef
	collector moRef
	version   string
}

func newWatch(l *lab, client *vim25.Client, refs ...moRef) *watch {
	l.Helper()
	content := client.ServiceContent
	view, err := methods.CreateListView(l.ctx, client, &types.CreateListView{This: *content.ViewManager})
	l.must(err)
	collector, err := methods.CreatePropertyCollector(l.ctx, client,
		&types.CreatePropertyCollector{This: content.PropertyCollector})
	l.must(err)
	w := &watch{lab: l, client: client, view: view.Returnval, collector: collector.Returnval}
	_, err = methods.CreateFilter(l.ctx, client, &types.CreateFilter{
		This: w.collector,
		Spec: types.PropertyFilterSpec{
			ObjectSet: []types.ObjectSpec{{
				Obj: w.view, Skip: types.NewBool(true),
				SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "ListView", Path: "view"}},
			}},
			PropSet: []types.PropertySpec{
				{Type: "VirtualMachine", PathSet: []string{"name", "runtime.powerState", "config.annotation"}},
				{Type: "Task", PathSet: []string{"info.state"}},
			},
		},
	})
	l.must(err)
	w.add(refs...)
	return w
}

func (w *watch) add(refs ...moRef) []moRef {
	w.Helper()
	res, err := methods.ModifyListView(w.ctx, w.client, &types.ModifyListView{This: w.view, Add: refs})
	w.must(err)
	return res.Returnval
}

func (w *watch) wait(version string, seconds int32, most int32) (*types.UpdateSet, error) {
	res, err := methods.WaitForUpdatesEx(w.ctx, w.client, &types.WaitForUpdatesEx{
		This: w.collector, Version: version,
		Options: &types.WaitOptions{MaxWaitSeconds: &seconds, MaxObjectUpdates: most},
	})
	if err != nil {
		return nil, err
	}
	return res.Returnval, nil
}

// next waits for changes and acknowledges them with the next call.
func (w *watch) next() *types.UpdateSet {
	w.Helper()
	set, err := w.wait(w.version, 10, 0)
	w.must(err)
	if set != nil {
		w.version = set.Version
	}
	return set
}

func (w *watch) expect(kind string) types.ObjectUpdate {
	w.Helper()
	set := w.next()
	if set == nil || len(set.FilterSet) != 1 || len(set.FilterSet[0].ObjectSet) != 1 {
		w.Fatalf("want one %s, got %+v", kind, set)
	}
	update := set.FilterSet[0].ObjectSet[0]
	if string(update.Kind) != kind {
		w.Fatalf("want %s, got %+v", kind, update)
	}
	return update
}

func (l *lab) made(name string) moRef {
	l.Helper()
	ref, fault := l.clone("ubuntu", name, l.cloneSpec())
	if fault != nil {
		l.Fatalf("%#v", fault)
	}
	return ref
}

func (l *lab) annotate(ref moRef, text string) {
	l.Helper()
	task, err := object.NewVirtualMachine(l.client, ref).Reconfigure(l.ctx,
		types.VirtualMachineConfigSpec{Annotation: text})
	l.must(err)
	if _, fault := l.in.hub.wait(task.Reference()); fault != nil {
		l.Fatalf("%#v", fault)
	}
}

func TestWatchTellsEachChangeOnce(t *testing.T) {
	l := newLab(t)
	ref := l.made("web")
	w := newWatch(l, l.client, ref)
	w.expect("enter")
	l.annotate(ref, "x")
	update := w.expect("modify")
	if len(update.ChangeSet) != 1 || update.ChangeSet[0].Name != "config.annotation" || update.ChangeSet[0].Val != "x" {
		t.Errorf("%+v", update.ChangeSet)
	}
	if set, err := w.wait(w.version, 0, 0); err != nil || set != nil {
		t.Errorf("told twice: %+v %v", set, err)
	}
	task, err := object.NewVirtualMachine(l.client, ref).Destroy(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	w.expect("leave")
}

func TestWatchRepeatsALostAnswer(t *testing.T) {
	l := newLab(t)
	ref := l.made("web")
	w := newWatch(l, l.client, ref)
	w.expect("enter")
	got := w.version
	l.annotate(ref, "x")
	w.expect("modify") // the client never sees it
	l.annotate(ref, "y")
	w.version = got
	if update := w.expect("modify"); update.ChangeSet[0].Val != "y" {
		t.Errorf("%+v", update)
	}
	w.version = ""
	w.expect("enter")
	_, err := w.wait("4711", 0, 0)
	wants[*types.InvalidCollectorVersion](l, faultOf(err))
}

func TestWatchGivesPages(t *testing.T) {
	l := newLab(t)
	var refs []moRef
	for i := range 7 {
		refs = append(refs, l.made(fmt.Sprintf("vm-%d", i)))
	}
	w := newWatch(l, l.client, refs...)
	told := map[moRef]bool{}
	for truncated := true; truncated; {
		set, err := w.wait(w.version, 10, 3)
		l.must(err)
		w.version = set.Version
		truncated = set.Truncated != nil && *set.Truncated
		for _, update := range set.FilterSet[0].ObjectSet {
			if told[update.Obj] {
				t.Errorf("%s is told twice", update.Obj)
			}
			told[update.Obj] = true
		}
	}
	if len(told) != 7 {
		t.Errorf("%d of 7", len(told))
	}
}

func TestWaitingCallEnds(t *testing.T) {
	ends := map[string]struct {
		how   func(*watch)
		fault types.BaseMethodFault
	}{
		"cancelled": {func(w *watch) {
			_, err := methods.CancelWaitForUpdates(w.ctx, w.client, &types.CancelWaitForUpdates{This: w.collector})
			w.must(err)
		}, &types.RequestCanceled{}},
		"destroyed": {func(w *watch) {
			_, err := methods.DestroyPropertyCollector(w.ctx, w.client,
				&types.DestroyPropertyCollector{This: w.collector})
			w.must(err)
		}, &types.RequestCanceled{}},
		"session terminated": {func(w *watch) {
			c := &control{in: w.in}
			_, err := c.terminateSessions(nil, []byte(`{"account":"admin"}`))
			w.must(err)
		}, &types.NotAuthenticated{}},
		"logged out": {func(w *watch) {
			_, err := methods.Logout(w.ctx, w.client, &types.Logout{This: *w.client.ServiceContent.SessionManager})
			w.must(err)
		}, &types.NotAuthenticated{}},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			w := newWatch(l, l.client)
			_, err := w.wait("", 0, 0)
			l.must(err)
			failed := make(chan error, 1)
			go func() {
				_, err := w.wait("0", 30, 0)
				failed <- err
			}()
			l.eventually("a waiting call", func() bool {
				return l.in.counters.report().SOAP["WaitForUpdatesEx"] == 2
			})
			time.Sleep(20 * time.Millisecond) // counted before it waits
			end.how(w)
			select {
			case err := <-failed:
				if got, want := fmt.Sprintf("%T", faultOf(err)), fmt.Sprintf("%T", end.fault); got != want {
					t.Errorf("want %s, got %s", want, got)
				}
			case <-time.After(patience):
				t.Error("it still waits")
			}
		})
	}
}

// The simulator's own list view and filters lock each other out under this load.
func TestListViewUnderLoad(t *testing.T) {
	l := newLab(t)
	var refs []moRef
	for i := range 10 {
		refs = append(refs, l.made(fmt.Sprintf("vm-%d", i)))
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range 4 {
		w := newWatch(l, l.client, refs...)
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				set, err := w.wait(w.version, 1, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if set != nil {
					w.version = set.Version
				}
			}
		})
		group.Go(func() {
			for i := range 100 {
				if _, err := methods.ModifyListView(l.ctx, l.client, &types.ModifyListView{
					This: w.view, Add: refs[i%10 : i%10+1], Remove: refs[(i+5)%10 : (i+5)%10+1],
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 20 {
		l.annotate(refs[i%10], fmt.Sprint(i))
	}
	done := make(chan struct{})
	go func() { time.Sleep(300 * time.Millisecond); close(stop); group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("locked up")
	}
}

func TestAFilterReportsObjectsThatAreNotThere(t *testing.T) {
	l := newLab(t)
	here, gone := l.made("here"), l.made("gone")
	task, err := object.NewVirtualMachine(l.client, gone).Destroy(l.ctx)
	l.must(err)
	if _, fault := l.in.hub.wait(task.Reference()); fault != nil {
		t.Fatalf("%#v", fault)
	}
	collector, err := methods.CreatePropertyCollector(l.ctx, l.client,
		&types.CreatePropertyCollector{This: l.client.ServiceContent.PropertyCollector})
	l.must(err)
	spec := types.PropertyFilterSpec{
		ObjectSet:                     []types.ObjectSpec{{Obj: here}, {Obj: gone}},
		PropSet:                       []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"name"}}},
		ReportMissingObjectsInResults: types.NewBool(true),
	}
	_, err = methods.CreateFilter(l.ctx, l.client,
		&types.CreateFilter{This: collector.Returnval, Spec: spec})
	l.must(err)
	w := &watch{lab: l, client: l.client, collector: collector.Returnval}
	for _, version := range []string{"", ""} { // an answer that was lost is repeated
		set, err := w.wait(version, 0, 0)
		l.must(err)
		missing := set.FilterSet[0].MissingSet
		if len(missing) != 1 || missing[0].Obj != gone {
			t.Fatalf("want %v, got %+v", gone, missing)
		}
		if _, ok := missing[0].Fault.Fault.(*types.ManagedObjectNotFound); !ok {
			t.Fatalf("got %#v", missing[0].Fault)
		}
		w.version = set.Version
	}
	set, err := w.wait(w.version, 0, 0)
	l.must(err)
	if set != nil {
		t.Fatalf("told twice: %+v", set)
	}
}
