#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| picker::fuzz::splice_body(bytes));
