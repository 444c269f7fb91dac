//! `shade-test-deny-io-uring ERRNO PROGRAM ARGS...`: becomes PROGRAM, under a seccomp filter that answers io_uring's
//! system calls with ERRNO and lets all others pass, as containers' default profiles do.
#![expect(clippy::unwrap_used, reason = "a fixture fails by panicking")]

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

fn main() {
    let mut args = env::args_os().skip(1);
    let errno: u32 = args.next().unwrap().to_str().unwrap().parse().unwrap();
    let program = args.next().unwrap();
    let denied = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    let filter = SeccompFilter::new(
        denied.into_iter().map(|call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        env::consts::ARCH.try_into().unwrap(),
    );
    let filter: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&filter).unwrap();
    panic!("cannot become {}: {}", program.display(), Command::new(&program).args(args).exec());
}
