//! Prices of partitions of devices.

use std::sync::Arc;

use super::products;
use crate::nodes::matches_discovery;
use crate::supply::{Class, Cost, Supply};

/// Sets the prices of partitions of a device that declare none: the share of the device's price that is their share of its memory.
/// The class of the device has the name before `-mig-`, or selects the product of which the partition is one.
pub fn price_partitions(supply: &mut Supply) {
    let devices: Vec<Arc<Class>> = supply.classes.iter().filter(|class| !class.is_fraction()).map(Arc::clone).collect();
    for class in supply.classes.iter_mut().filter(|class| class.is_fraction() && class.cost.has_no_amount()) {
        let Some(device) = device_of(class, &devices) else { continue };
        let Some((part, whole)) = class.memory.zip(device.memory.filter(|memory| *memory > 0)) else { continue };
        let share = part as f64 / whole as f64;
        let Cost { per_hour, spot_per_hour, .. } = device.cost;
        let cost = &mut Arc::make_mut(class).cost;
        (cost.per_hour, cost.spot_per_hour) =
            (per_hour.map(|price| price * share), spot_per_hour.map(|price| price * share));
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
