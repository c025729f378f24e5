// Exercises client-go against the server of the kubeconfig in the first argument: an informer whose objects are
// created, updated, leave its selector and are deleted; leader election with two candidates; and a loop of
// server-side apply with two field managers.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const namespace = "default"

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	check(err, "kubeconfig")
	client, err := kubernetes.NewForConfig(config)
	check(err, "client")
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	version, err := client.Discovery().ServerVersion()
	check(err, "version")
	groups, lists, err := client.Discovery().ServerGroupsAndResources()
	check(err, "discovery")
	must(len(groups) > 5 && len(lists) > 5, "discovery of %s finds %d groups", version, len(groups))

	informer(ctx, client)
	election(ctx, client)
	apply(ctx, client)
	fmt.Println("ok")
}

// informer expects every event once and in order, also when the object leaves the selector and matches it again.
func informer(ctx context.Context, client kubernetes.Interface) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	maps := client.CoreV1().ConfigMaps(namespace)
	_, err := maps.Create(ctx, configMap("existing", "x"), metav1.CreateOptions{})
	check(err, "create")

	selected := informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "app=x" })
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), selected)
	seen := make(chan string, 100)
	record := func(verb string, object any) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		configMap := object.(*corev1.ConfigMap)
		seen <- fmt.Sprintf("%s %s %s", verb, configMap.Name, configMap.Data["k"])
	}
	configMaps := factory.Core().V1().ConfigMaps()
	_, err = configMaps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { record("added", object) },
		UpdateFunc: func(_, object any) { record("updated", object) },
		DeleteFunc: func(object any) { record("deleted", object) },
	})
	check(err, "handler")
	factory.Start(ctx.Done())
	must(cache.WaitForCacheSync(ctx.Done(), configMaps.Informer().HasSynced), "the cache did not sync")
	expect(ctx, seen, "added existing 1")

	_, err = maps.Create(ctx, configMap("other", "y"), metav1.CreateOptions{})
	check(err, "create another")
	_, err = maps.Create(ctx, configMap("a", "x"), metav1.CreateOptions{})
	check(err, "create a")
	for _, patch := range []string{
		`{"data":{"k":"2"}}`, `{"data":{"k":"2"}}`, `{"metadata":{"labels":{"app":"z"}}}`, `{"data":{"k":"3"}}`,
		`{"metadata":{"labels":{"app":"x"}}}`,
	} {
		_, err = maps.Patch(ctx, "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		check(err, patch)
	}
	check(maps.Delete(ctx, "a", metav1.DeleteOptions{}), "delete a")
	for _, event := range []string{"added a 1", "updated a 2", "deleted a 2", "added a 3", "deleted a 3"} {
		expect(ctx, seen, event)
	}
	remaining, err := configMaps.Lister().ConfigMaps(namespace).Get("existing")
	check(err, "lister")
	must(remaining.Data["k"] == "1", "lister returned %v", remaining.Data)
}

func configMap(name, app string) *corev1.ConfigMap {
	labels := map[string]string{"app": app}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"k": "1"}}
}

// election expects one leader, and the other candidate to take over when it releases the lease.
func election(ctx context.Context, client kubernetes.Interface) {
	leads := make(chan string, 10)
	first, release := context.WithCancel(ctx)
	second, stop := context.WithCancel(ctx)
	defer stop()
	go candidate(first, client, "one", leads)
	expect(ctx, leads, "one leads")
	go candidate(second, client, "two", leads)
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, "leader", metav1.GetOptions{})
	check(err, "lease")
	must(*lease.Spec.HolderIdentity == "one", "held by %s", *lease.Spec.HolderIdentity)
	release()
	expect(ctx, leads, "one stops")
	expect(ctx, leads, "two leads")
	lease, err = client.CoordinationV1().Leases(namespace).Get(ctx, "leader", metav1.GetOptions{})
	check(err, "lease")
	must(*lease.Spec.HolderIdentity == "two", "then held by %s", *lease.Spec.HolderIdentity)
	must(*lease.Spec.LeaseTransitions >= 1, "transitions: %d", *lease.Spec.LeaseTransitions)
}

func candidate(ctx context.Context, client kubernetes.Interface, name string, leads chan<- string) {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: namespace},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leads <- name + " leads" },
			OnStoppedLeading: func() {
				if name == "one" {
					leads <- name + " stops"
				}
			},
		},
	})
}

// apply expects no change when applied again, a conflict on a field of another manager, and a new owner after force.
func apply(ctx context.Context, client kubernetes.Interface) {
	deployments := client.AppsV1().Deployments(namespace)
	owner := metav1.ApplyOptions{FieldManager: "owner"}
	first, err := deployments.Apply(ctx, deployment(2), owner)
	check(err, "apply")
	for range 20 {
		again, err := deployments.Apply(ctx, deployment(2), owner)
		check(err, "apply again")
		must(again.ResourceVersion == first.ResourceVersion, "applying again changed the resource version to %s", again.ResourceVersion)
	}
	scaled := appsapply.Deployment("web", namespace).WithSpec(appsapply.DeploymentSpec().WithReplicas(5))
	_, err = deployments.Apply(ctx, scaled, metav1.ApplyOptions{FieldManager: "scaler"})
	must(errors.IsConflict(err), "no conflict: %v", err)
	cause, found := errors.StatusCause(err, metav1.CauseTypeFieldManagerConflict)
	must(found && cause.Field == ".spec.replicas", "conflict about %v", cause)
	forced, err := deployments.Apply(ctx, scaled, metav1.ApplyOptions{FieldManager: "scaler", Force: true})
	check(err, "force")
	must(*forced.Spec.Replicas == 5, "replicas after force: %d", *forced.Spec.Replicas)
	_, err = deployments.Apply(ctx, deployment(2), owner)
	must(errors.IsConflict(err), "the owner has lost the field: %v", err)

	owned, err := appsapply.ExtractDeployment(forced, "scaler")
	check(err, "extract")
	must(*owned.Spec.Replicas == 5 && owned.Spec.Template == nil, "the scaler must own only its field")
	withoutReplicas := deployment(2)
	withoutReplicas.Spec.Replicas = nil
	retained, err := deployments.Apply(ctx, withoutReplicas, owner)
	check(err, "give up")
	must(*retained.Spec.Replicas == 5, "replicas after the first owner gave them up: %d", *retained.Spec.Replicas)
}

func deployment(replicas int32) *appsapply.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "web"}
	main := coreapply.Container().WithName("main").WithImage("web:1")
	template := coreapply.PodTemplateSpec().WithLabels(labels).WithSpec(coreapply.PodSpec().WithContainers(main))
	spec := appsapply.DeploymentSpec().WithReplicas(replicas).WithTemplate(template)
	return appsapply.Deployment("web", namespace).WithSpec(spec.WithSelector(metaapply.LabelSelector().WithMatchLabels(labels)))
}

func expect(ctx context.Context, events <-chan string, want string) {
	select {
	case got := <-events:
		must(got == want, "got %q, want %q", got, want)
	case <-ctx.Done():
		must(false, "timed out waiting for %q", want)
	}
}

func check(err error, operation string) {
	must(err == nil, "%s: %v", operation, err)
}

func must(condition bool, format string, values ...any) {
	if !condition {
		fmt.Fprintf(os.Stderr, format+"\n", values...)
		os.Exit(1)
	}
}
