//! `shade-test-deny-io-uring all|busy ERRNO PROGRAM ARGS...` executes PROGRAM under a seccomp
//! filter that answers io_uring's system calls with ERRNO, as containers' default profiles do. With
//! `busy` it denies only submissions of two operations or more: the ring can be made, but fails
//! under load.
#![expect(clippy::unwrap_used, reason = "a fixture fails by panicking")]

use std::collections::BTreeMap;
use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

fn main() {
    let mut args = env::args_os().skip(1);
    let is_busy_only = args.next().unwrap() == "busy";
    let errno: u32 = args.next().unwrap().to_str().unwrap().parse().unwrap();
    let program = args.next().unwrap();
    let denied = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    let all = BTreeMap::from(denied.map(|call| (call, Vec::new())));
    // The second argument is the number of operations submitted.
    let many = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ge, 2).unwrap();
    let busy = BTreeMap::from([(libc::SYS_io_uring_enter, vec![SeccompRule::new(vec![many]).unwrap()])]);
    let filter = SeccompFilter::new(
        if is_busy_only { busy } else { all },
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        env::consts::ARCH.try_into().unwrap(),
    );
    let filter: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&filter).unwrap();
    panic!("cannot become {}: {}", program.display(), Command::new(&program).args(args).exec());
}
