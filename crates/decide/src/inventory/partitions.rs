//! Figures of partitions of devices that their classes do not state.

use std::sync::Arc;

use super::products;
use crate::demand::Performance;
use crate::nodes::matches_discovery;
use crate::supply::{Class, Cost, Supply};

/// Slices of the streaming multiprocessors of a device (MIG user guide, Supported MIG Profiles).
const COMPUTE_SLICES: f64 = 7.0;

/// Sets the prices, the bandwidth and the throughput of partitions that declare none, from those of their device. Price and
/// bandwidth are those of the device times the share of its memory; throughput is that of the device times the share of its
/// streaming multiprocessors. The class of the device has the name before `-mig-`, or selects the product of which the partition
/// is one.
pub fn complete_partitions(supply: &mut Supply) {
    let devices: Vec<Arc<Class>> = supply.classes.iter().filter(|class| !class.is_fraction()).map(Arc::clone).collect();
    for class in supply.classes.iter_mut().filter(|class| class.is_fraction() && is_incomplete(class)) {
        let Some(device) = device_of(class, &devices) else { continue };
        let Some((part, whole)) = class.memory.zip(device.memory.filter(|memory| *memory > 0)) else { continue };
        let share = part as f64 / whole as f64;
        let class = Arc::make_mut(class);
        if class.cost.has_no_amount() {
            let Cost { per_hour, spot_per_hour, .. } = device.cost;
            class.cost.per_hour = per_hour.map(|price| price * share);
            class.cost.spot_per_hour = spot_per_hour.map(|price| price * share);
        }
        class.bandwidth = class.bandwidth.or(device.bandwidth.map(|bandwidth| bandwidth * share));
        if class.performance == Performance::default() {
            class.performance = scaled(&device.performance, compute_share(&class.name).unwrap_or(share));
        }
    }
}

fn is_incomplete(class: &Class) -> bool {
    class.cost.has_no_amount() || class.bandwidth.is_none() || class.performance == Performance::default()
}

/// Returns the share of the streaming multiprocessors of a MIG profile such as `2g.10gb` at the end of the name.
fn compute_share(name: &str) -> Option<f64> {
    let name = name.to_ascii_lowercase();
    let (_, profile) = name.rsplit_once("mig-")?;
    let (slices, _) = profile.split_once('g')?;
    let slices = slices.parse::<f64>().ok().filter(|slices| (1.0..=COMPUTE_SLICES).contains(slices))?;
    Some(slices / COMPUTE_SLICES)
}

fn scaled(performance: &Performance, share: f64) -> Performance {
    let scale = |figure: Option<f64>| figure.map(|figure| figure * share);
    Performance {
        fp8: scale(performance.fp8),
        fp16: scale(performance.fp16),
        fp32: scale(performance.fp32),
        int8: scale(performance.int8),
        int4: scale(performance.int4),
    }
}

fn device_of<'a>(class: &Class, devices: &'a [Arc<Class>]) -> Option<&'a Class> {
    let name = class.name.split_once("-mig-").map(|(device, _)| device);
    let named = devices.iter().find(|device| Some(device.name.as_str()) == name);
    let matching = || {
        let labels = products::sliced_device(class)?;
        devices.iter().find(|device| matches_discovery(&device.discovery, "", &labels))
    };
    named.or_else(matching).map(Arc::as_ref)
}
