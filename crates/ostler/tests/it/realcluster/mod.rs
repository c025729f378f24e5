//! Tests with a real API server, LeaderWorkerSet and Volcano, run by `cargo xtask test --with realcluster`.
//!
//! The sections of [`journeys`] share a cluster, because its start is slow, and each uses its own namespace; the installation by
//! the README has its own cluster. The operator runs as its shipped
//! ServiceAccount; the last tests compare its permissions with the audit log. With `OSTLER_REALCLUSTER_RUN=DIRECTORY`, state
//! and logs are kept in that directory.

mod capacity;
mod election;
mod flavors;
mod gangs;
mod group_surge;
mod installing;
mod namespaces;
mod permissions;
mod policies;
mod pruning;
mod quota;
mod readme;
mod roles;
mod rollout;
mod routers;
mod serving;
mod test_cluster;
mod upgrade;
mod watches;
mod workers;

use std::time::Instant;

use realcluster::Binaries;

use crate::session::TempDirectory;
use test_cluster::TestCluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a built control plane: cargo xtask test --with realcluster"]
async fn journeys() {
    let temp_directory = TempDirectory::new();
    let directory =
        std::env::var_os("OSTLER_REALCLUSTER_RUN").map_or_else(|| temp_directory.0.join("cluster"), Into::into);
    let start = Instant::now();
    let section = |name: &str| eprintln!("{:6.1} s  {name}", start.elapsed().as_secs_f64());
    let mut test_cluster = TestCluster::start(Binaries::find_all().unwrap(), directory).await;
    section("CustomResourceDefinitions and catalog");
    installing::install_definitions(&test_cluster).await;
    installing::install_catalog(&test_cluster).await;
    installing::install_operator(&test_cluster).await;
    section("rejected objects");
    installing::schema_rejects_invalid_objects(&test_cluster).await;
    installing::update_class_and_status(&test_cluster).await;
    test_cluster.start_operator("first", &[]).await;
    installing::webhook_rejects_invalid_objects(&test_cluster).await;
    section("services of ome.io");
    serving::service_lifecycle(&test_cluster).await;
    serving::scheduler_receives_valid_terms(&test_cluster).await;
    serving::removed_components_are_pruned(&test_cluster).await;
    section("integrations that are installed later");
    gangs::integrations_installed_later(&mut test_cluster).await;
    section("gangs");
    gangs::schedules_complete_replicas(&test_cluster).await;
    section("loss of nodes");
    capacity::gang_recovers_after_node_loss(&test_cluster).await;
    section("role-based services");
    roles::pod_template_is_passed_unchanged(&test_cluster).await;
    roles::one_complete_replica_runs_if_two_do_not_fit(&test_cluster).await;
    roles::deleted_worker_restarts_its_group(&test_cluster).await;
    roles::updates_of_the_group_retain_fields_of_volcano(&test_cluster).await;
    section("multi-node engines");
    workers::replicas_have_unique_names(&test_cluster).await;
    workers::deployment_serves_until_it_is_replaced(&test_cluster).await;
    section("updates of multi-node engines");
    group_surge::additional_group_serves_during_update(&test_cluster).await;
    section("earlier CustomResourceDefinitions are replaced");
    upgrade::definitions_are_replaced(&test_cluster).await;
    section("pruning");
    pruning::objects_of_other_owners_are_retained(&test_cluster).await;
    pruning::removed_roles_are_pruned(&test_cluster).await;
    section("routers");
    routers::router_lifecycle(&test_cluster).await;
    section("rollout");
    rollout::broken_image_is_undone(&test_cluster).await;
    rollout::paused_rollout_resumes(&test_cluster).await;
    rollout::full_node_is_updated_in_place(&test_cluster).await;
    section("Kueue ResourceFlavors");
    flavors::flavors_and_classes_are_synchronized(&test_cluster).await;
    section("quota by Kueue");
    quota::service_over_quota_runs_once_quota_is_free(&mut test_cluster).await;
    quota::workload_is_admitted_to_the_flavor_of_its_class(&test_cluster).await;
    section("leader election");
    election::new_leader_completes_reconcile(&mut test_cluster).await;
    section("interrupted watches");
    watches::watches_recover(&test_cluster).await;
    section("permissions");
    let address = permissions::host_address();
    match address {
        Some(address) => permissions::webhook_certificate_behind_service(&mut test_cluster, address).await,
        None => eprintln!("         skipped: only loopback addresses"),
    }
    permissions::granted_permissions_are_used(&mut test_cluster, address.is_some()).await;
    permissions::gateway_uses_its_permissions(&test_cluster).await;
    section("admission policies");
    policies::token_changes_only_managed_objects(&test_cluster).await;
    section("operator of two namespaces");
    namespaces::operator_uses_only_its_namespaces(&mut test_cluster).await;
    section("done");
}
