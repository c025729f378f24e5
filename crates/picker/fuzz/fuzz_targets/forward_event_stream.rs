#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| picker::fuzz::forward_event_stream(bytes));
