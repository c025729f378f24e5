#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| picker::fuzz::process_ext_proc_messages(bytes));
