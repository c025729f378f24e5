#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| picker::fuzz::parse_metrics_page(bytes));
