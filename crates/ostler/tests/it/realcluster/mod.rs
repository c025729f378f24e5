//! The binary against a real API server, LeaderWorkerSet and Volcano: started by `cargo xtask test --with realcluster`.
//!
//! One cluster for all, since starting it is what takes long; each chapter has a namespace of its own. The operator runs
//! as its shipped account, and what the audit log has of it is the last chapter. With `OSTLER_REALCLUSTER_RUN=FOLDER`
//! state and logs stay there.

mod capacity;
mod election;
mod flavors;
mod gangs;
mod installing;
mod pruning;
mod rights;
mod rollout;
mod routers;
mod serving;
mod watches;
mod workers;
mod world;

use std::time::Instant;

use realcluster::Binaries;

use crate::session::Folder;
use world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a built control plane: cargo xtask test --with realcluster"]
async fn journeys() {
    let scratch = Folder::new();
    let folder = std::env::var_os("OSTLER_REALCLUSTER_RUN").map_or_else(|| scratch.0.join("cluster"), Into::into);
    let began = Instant::now();
    let chapter = |name: &str| eprintln!("{:6.1} s  {name}", began.elapsed().as_secs_f64());
    let mut world = World::start(Binaries::find().unwrap(), folder).await;
    chapter("definitions and catalogue");
    installing::definitions(&world).await;
    installing::catalogue(&world).await;
    installing::the_shipped_manifests(&world).await;
    chapter("what is refused");
    installing::refusals_of_the_schema(&world).await;
    installing::classes(&world).await;
    world.operate("first", &[]).await;
    installing::refusals_of_the_webhook(&world).await;
    chapter("services of ome.io");
    serving::a_service_comes_up_and_goes(&world).await;
    serving::what_reaches_the_scheduler_is_valid(&world).await;
    serving::what_is_asked_for_no_more_goes(&world).await;
    chapter("neighbours that come late");
    gangs::neighbours_come_late(&mut world).await;
    chapter("gangs");
    gangs::the_table(&world).await;
    chapter("nodes that go and come back");
    capacity::taken_and_given_back(&world).await;
    chapter("several nodes");
    workers::every_replica_has_names_of_its_own(&world).await;
    chapter("pruning");
    pruning::foreign_objects_are_not_touched(&world).await;
    pruning::what_is_wanted_no_more_goes(&world).await;
    chapter("routers");
    routers::a_router_comes_up_and_goes(&world).await;
    chapter("rollout");
    rollout::a_broken_image_stops_and_is_undone(&world).await;
    rollout::a_paused_one_goes_on_when_it_is_resumed(&world).await;
    chapter("Kueue's flavors");
    flavors::carol(&world).await;
    chapter("a leader that is killed");
    election::the_leader_is_killed_between_two_writes(&mut world).await;
    chapter("watches that are lost");
    watches::lost_and_expired(&world).await;
    chapter("rights");
    let address = rights::own_address();
    match address {
        Some(address) => rights::the_certificate_of_a_service(&mut world, address).await,
        None => eprintln!("         left out: no address but loopback"),
    }
    rights::granted_is_used_and_used_is_granted(&mut world, address.is_some()).await;
    chapter("done");
}
