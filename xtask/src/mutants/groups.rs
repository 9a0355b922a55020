//! The order of the tests that a mutant meets: three groups, the first that fails kills it.

use super::CODE;

/// Tests that take two seconds and more where nothing is optimised. A name that is gone
/// does no harm.
const SLOW: &[&str] = &[
    "bursts_are_read_ahead_of_many_connections_and_records",
    "fast_paths_do_what_the_steps_do",
    "however_frames_are_divided_they_do_the_same",
    "a_full_syn_cache_keeps_no_kind_of_client_from_being_served",
    "everything_arrives_under_loss_with_sack_and_without",
    "a_writer_is_told_some_times_a_round_trip_and_not_at_each_ack",
    "adopted_chunks_are_taken_back_behind_what_is_in_flight",
    "borrowed_chunks_are_taken_back_though_the_pool_charges_none",
    "whatever_is_taken_back_the_client_reads_what_the_source_has",
    "behaves_like_one_long_vector",
    "a_burst_that_expires_at_once_goes_in_shares_with_its_memory",
    "a_tuple_opened_again_and_again_does_not_make_the_table_grow",
    "an_ipv4_record_takes_under_32_bytes_and_an_ipv6_one_under_46",
    "few_records_of_long_terms_are_all_there",
    "numbers_do_not_run_out_where_the_newest_comes_and_goes",
    "records_that_mostly_end_early_do_not_keep_the_memory_of_all",
    "what_turns_over_takes_no_more_bytes_than_what_came_first",
    "a_full_table_lets_nobody_go_while_the_time_of_others_is_over",
    "however_often_one_is_moved_it_lasts_no_longer",
    "memory_goes_with_those_that_are_removed",
    "records_restarted_again_and_again_block_none_and_are_kept",
    "the_table_does_as_the_model",
    "agrees_with_a_sorted_map",
];

/// Seconds until a group is over, several times what it takes; a mutant that loops is killed.
const GROUP_SECONDS: [u32; 3] = [90, 180, 900];
/// KiB of memory that the tests may take: a mutant that loops may also allocate.
const MEMORY_KIB: u32 = 8 << 20;

/// A group ends at its first failing test.
const FAIL_FAST: &str = "-Zunstable-options --fail-fast";

/// Cargo's configuration of what runs the tests.
pub(super) fn as_config(files: &[String], is_quick: bool) -> String {
    let script = script(files, is_quick);
    format!("target.'cfg(all())'.runner=['sh', '-c', '''{script}''']")
}

/// The script that runs the groups of a test program, which is its `$0`.
fn script(files: &[String], is_quick: bool) -> String {
    let skip: String = SLOW.iter().map(|name| format!(" --skip {name}")).collect();
    let beside: String = files.iter().map(|file| format!(" {}", tests_beside(file))).collect();
    let slow = SLOW.join(" ");
    let mut groups = vec![slow];
    groups.insert(0, skip.trim_start().to_owned());
    if !beside.is_empty() {
        groups.insert(0, format!("{skip}{beside}").trim_start().to_owned());
    }
    if is_quick {
        groups.pop();
    }
    let seconds = &GROUP_SECONDS[3 - groups.len() - usize::from(is_quick)..];
    let runs: Vec<String> = groups
        .iter()
        .zip(seconds)
        .map(|(group, seconds)| {
            format!("timeout --foreground {seconds} \"$0\" {FAIL_FAST} -q {group}")
        })
        .collect();
    // The test program, not the compiler, is told to take a flag that is not stable yet.
    let unstable = "export RUSTC_BOOTSTRAP=1";
    format!("ulimit -v {MEMORY_KIB} && {unstable} && {}", runs.join(" && "))
}

/// The path of the tests beside a file, as the test program names them.
fn tests_beside(file: &str) -> String {
    let path = file.strip_prefix(CODE).unwrap_or(file).trim_start_matches('/');
    path.strip_suffix(".rs").unwrap_or(path).replace('/', "::") + "::tests::"
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOS: &str = "crates/core/src/tcp/send/los.rs";

    #[test]
    fn the_tests_beside_the_code_come_first_and_the_slow_ones_last() {
        let script = script(&[LOS.to_owned()], false);
        let groups: Vec<&str> = script.split(" && ").collect();
        let [limit, _, beside, most, slow] = groups[..] else { panic!("three groups: {script}") };
        assert!(limit.starts_with("ulimit -v"));
        assert!(beside.contains(" -q --skip ") && beside.ends_with(" tcp::send::los::tests::"));
        assert!(most.contains(" -q --skip ") && !most.contains("::los::"));
        assert!(slow.ends_with(&format!(" -q {}", SLOW.join(" "))) && !slow.contains("--skip"));
    }

    #[test]
    fn a_change_has_no_first_group_and_a_first_look_no_last() {
        let seconds = |files: &[String], is_quick| {
            let script = script(files, is_quick);
            GROUP_SECONDS.map(|seconds| script.contains(&format!(" {seconds} \"")))
        };
        assert_eq!(seconds(&[LOS.to_owned()], false), [true, true, true]);
        assert_eq!(seconds(&[], false), [false, true, true]);
        assert_eq!(seconds(&[LOS.to_owned()], true), [true, true, false]);
        assert_eq!(seconds(&[], true), [false, true, false]);
    }

    #[test]
    fn a_file_has_its_tests_beside_it() {
        assert_eq!(tests_beside(LOS), "tcp::send::los::tests::");
    }
}
