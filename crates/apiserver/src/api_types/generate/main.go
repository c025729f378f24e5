// Prints the fields of the served Kubernetes types from the struct tags of k8s.io/api, one
// paragraph per message. Written to ../messages.txt by
//
//	go run . > ../messages.txt
package main

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types whose JSON is not an object of their fields; the decoder handles each by name.
var opaque = map[string]bool{
	"meta.v1.Time": true, "meta.v1.MicroTime": true, "meta.v1.FieldsV1": true, "resource.Quantity": true,
	"util.intstr.IntOrString": true, "runtime.RawExtension": true,
	"apiextensions.v1.JSON": true, "apiextensions.v1.JSONSchemaPropsOrArray": true,
	"apiextensions.v1.JSONSchemaPropsOrBool": true, "apiextensions.v1.JSONSchemaPropsOrStringArray": true,
}

var roots = []any{
	apiextensionsv1.CustomResourceDefinition{}, appsv1.ControllerRevision{}, appsv1.Deployment{}, appsv1.ReplicaSet{}, appsv1.StatefulSet{}, authenticationv1.SelfSubjectReview{}, authenticationv1.TokenRequest{},
	authorizationv1.SelfSubjectAccessReview{}, authorizationv1.SelfSubjectRulesReview{},
	autoscalingv1.HorizontalPodAutoscaler{}, autoscalingv2.HorizontalPodAutoscaler{}, batchv1.Job{}, coordinationv1.Lease{}, corev1.ConfigMap{},
	corev1.Endpoints{}, corev1.Event{}, corev1.Namespace{}, corev1.Node{}, corev1.PersistentVolume{},
	corev1.PersistentVolumeClaim{}, corev1.Pod{}, corev1.Secret{}, corev1.Service{}, corev1.ServiceAccount{},
	discoveryv1.EndpointSlice{}, eventsv1.Event{}, metav1.DeleteOptions{}, networkingv1.Ingress{},
	policyv1.Eviction{}, policyv1.PodDisruptionBudget{}, rbacv1.ClusterRole{}, rbacv1.ClusterRoleBinding{},
	rbacv1.Role{}, rbacv1.RoleBinding{}, schedulingv1.PriorityClass{}, storagev1.StorageClass{},
}

func name(t reflect.Type) string {
	path := t.PkgPath()
	for _, prefix := range []string{"k8s.io/api/", "k8s.io/apimachinery/pkg/apis/", "k8s.io/apimachinery/pkg/api/", "k8s.io/apimachinery/pkg/", "k8s.io/apiextensions-apiserver/pkg/apis/"} {
		path = strings.TrimPrefix(path, prefix)
	}
	return strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

var pending []reflect.Type

func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kind(t.Elem()) + "?"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + kind(t.Elem())
	case reflect.Map:
		return "map " + kind(t.Elem())
	case reflect.Struct:
		if !opaque[name(t)] {
			pending = append(pending, t)
		}
		return name(t)
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int"
	case reflect.Int64, reflect.Int:
		return "int64"
	case reflect.Float64:
		return "float"
	}
	panic(t.String())
}

func main() {
	for _, root := range roots {
		pending = append(pending, reflect.TypeOf(root))
	}
	messages := map[string]string{}
	for len(pending) > 0 {
		t := pending[0]
		pending = pending[1:]
		if _, done := messages[name(t)]; done {
			continue
		}
		var lines strings.Builder
		for i := 0; i < t.NumField(); i++ {
			field := t.Field(i)
			tag := field.Tag.Get("protobuf")
			json := strings.Split(field.Tag.Get("json"), ",")
			if tag == "" || tag == "-" {
				continue
			}
			number := strings.Split(tag, ",")[1]
			shown := json[0]
			for _, option := range json[1:] {
				if option == "inline" {
					shown = "."
				}
			}
			if shown == "" {
				shown = "."
			}
			always := ""
			omitted := strings.Contains(field.Tag.Get("json"), "omitempty") && field.Type.Kind() != reflect.Struct
			omitted = omitted || strings.Contains(field.Tag.Get("json"), "omitzero")
			if !omitted && shown != "." {
				always = "!"
			}
			fmt.Fprintf(&lines, "%s %s %s%s\n", number, shown, kind(field.Type), always)
		}
		messages[name(t)] = lines.String()
	}
	var names []string
	for n := range messages {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		fmt.Printf("%s\n%s\n", n, messages[n])
	}
}
