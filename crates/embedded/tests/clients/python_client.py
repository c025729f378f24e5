"""Exercises the official Python client against the server of the kubeconfig in the first argument."""

import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

config.load_kube_config(sys.argv[1])
core, apps, custom = client.CoreV1Api(), client.AppsV1Api(), client.CustomObjectsApi()
NAMESPACE = "default"
LABELS = {"app": "web"}


def config_map(name, app="x"):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": app}), data={"k": "1"})


def assert_rejected(code, call, *args, **kwargs):
    """Calls the function, asserts that it fails with the status code, and returns the error."""
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == code, error
        return error
    raise SystemExit(f"{call.__name__} did not fail with {code}")


def test_objects():
    """Creates, reads, replaces, patches and deletes objects; stale and missing ones are rejected."""
    created = core.create_namespaced_config_map(NAMESPACE, config_map("a"))
    assert_rejected(409, core.create_namespaced_config_map, NAMESPACE, config_map("a"))
    assert_rejected(404, core.read_namespaced_config_map, "none", NAMESPACE)
    created.data = {"k": "2"}
    core.replace_namespaced_config_map("a", NAMESPACE, created)
    assert_rejected(409, core.replace_namespaced_config_map, "a", NAMESPACE, created)
    strategic = core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"l": "1"}})
    assert strategic.data == {"k": "2", "l": "1"}, strategic.data
    operations = [{"op": "remove", "path": "/data/l"}]
    assert core.patch_namespaced_config_map("a", NAMESPACE, operations).data == {"k": "2"}
    dry = core.create_namespaced_config_map(NAMESPACE, config_map("dry"), dry_run="All")
    assert dry.metadata.uid
    assert_rejected(404, core.read_namespaced_config_map, "dry", NAMESPACE)
    core.delete_namespaced_config_map("a", NAMESPACE, propagation_policy="Foreground")
    assert_rejected(404, core.read_namespaced_config_map, "a", NAMESPACE)


def test_pages():
    """Lists in pages; every page shows the snapshot of the first one."""
    for number in range(5):
        core.create_namespaced_config_map(NAMESPACE, config_map(f"page-{number}"))
    page = core.list_namespaced_config_map(NAMESPACE, limit=2, label_selector="app=x")
    core.delete_namespaced_config_map("page-4", NAMESPACE)
    names = [item.metadata.name for item in page.items]
    while page.metadata._continue:
        page = core.list_namespaced_config_map(
            NAMESPACE, limit=2, label_selector="app=x", _continue=page.metadata._continue
        )
        names += [item.metadata.name for item in page.items]
    assert names == [f"page-{number}" for number in range(5)], names
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="app=x")
    assert not core.list_namespaced_config_map(NAMESPACE, label_selector="app=x").items


def test_watches():
    """A watch sends the events since its resource version, also for objects that leave the selector, and resumes."""
    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, config_map("w"))
    for change in ({"data": {"k": "2"}}, {"metadata": {"labels": {"app": "y"}}}, {"metadata": {"labels": {"app": "x"}}}):
        core.patch_namespaced_config_map("w", NAMESPACE, change)
    core.delete_namespaced_config_map("w", NAMESPACE)

    def read_events(count, version):
        stream, events = watch.Watch(), []
        for event in stream.stream(
            core.list_namespaced_config_map,
            NAMESPACE,
            label_selector="app=x",
            resource_version=version,
            timeout_seconds=20,
        ):
            events.append((event["type"], event["object"].metadata.resource_version))
            if len(events) == count:
                stream.stop()
        return events

    events = read_events(5, start)
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"], events
    assert read_events(3, events[1][1]) == events[2:], "resumed after the second event"
    assert [int(version) for _, version in events] == sorted(int(version) for _, version in events)


def test_apply():
    """Applies server-side with two field managers, with the typed and the dynamic client."""
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}},
        },
    }
    deployments = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="apps/v1", kind="Deployment")
    first = deployments.server_side_apply(body=body, name="web", namespace=NAMESPACE, field_manager="owner")
    again = deployments.server_side_apply(body=body, name="web", namespace=NAMESPACE, field_manager="owner")
    assert first.metadata.resourceVersion == again.metadata.resourceVersion, "applying again changes the object"

    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 5}}
    options = {"_content_type": "application/apply-patch+yaml", "field_manager": "scaler"}
    conflict = assert_rejected(409, apps.patch_namespaced_deployment, "web", NAMESPACE, scaled, **options)
    assert ".spec.replicas" in conflict.body and 'conflict with \\"owner\\"' in conflict.body, conflict.body
    forced = apps.patch_namespaced_deployment("web", NAMESPACE, scaled, force=True, **options)
    assert forced.spec.replicas == 5, forced.spec
    owners = {entry.manager: entry.fields_v1 for entry in forced.metadata.managed_fields}
    assert owners["scaler"] == {"f:spec": {"f:replicas": {}}}, owners
    assert "f:replicas" not in owners["owner"]["f:spec"], owners
    scale = apps.read_namespaced_deployment_scale("web", NAMESPACE)
    assert scale.spec.replicas == 5 and scale.status.selector == "app=web", scale


def test_custom_resources():
    """Creates a custom resource: definition, defaults, validation rules and status."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer"}, "color": {"type": "string", "default": "red"}},
                "x-kubernetes-validations": [{"rule": "self.size < 10", "message": "too big"}],
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
    names = client.V1CustomResourceDefinitionNames(plural="gears", kind="Gear")
    version = client.V1CustomResourceDefinitionVersion(
        name="v1",
        served=True,
        storage=True,
        schema=client.V1CustomResourceValidation(open_apiv3_schema=schema),
        subresources=client.V1CustomResourceSubresources(status={}),
    )
    spec = client.V1CustomResourceDefinitionSpec(group="example.com", scope="Namespaced", names=names, versions=[version])
    definition = client.V1CustomResourceDefinition(metadata=client.V1ObjectMeta(name="gears.example.com"), spec=spec)
    client.ApiextensionsV1Api().create_custom_resource_definition(definition)

    gears = ("example.com", "v1", NAMESPACE, "gears")
    gear = {"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "g"}, "spec": {"size": 3}}
    created = custom.create_namespaced_custom_object(*gears, gear)
    assert created["spec"] == {"size": 3, "color": "red"}, created
    error = assert_rejected(422, custom.patch_namespaced_custom_object, *gears, "g", {"spec": {"size": 11}})
    assert "too big" in error.body, error.body
    patched = custom.patch_namespaced_custom_object_status(*gears, "g", {"status": {"phase": "Ready"}, "spec": {"size": 4}})
    assert patched["status"] == {"phase": "Ready"} and patched["spec"]["size"] == 3, patched
    assert len(custom.list_namespaced_custom_object(*gears)["items"]) == 1


for test in (test_objects, test_pages, test_watches, test_apply, test_custom_resources):
    test()
print("ok")
