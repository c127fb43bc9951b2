//! The suite passes a backend that keeps F1–F7, and fails every backend that does not.
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod reference;

use reference::{Bug, Locked, Seeded, full_caps, least_caps};
use sherman_conformance::contract::{Outcome, Report, Rule, only, replay, suite};
use std::collections::BTreeSet;

fn seeded(bug: Bug) -> Seeded {
    Seeded { bug, caps: full_caps(), servers: 2, rounds: 12, runs: 40 }
}

fn assert_clean(report: &Report) {
    assert!(report.is_clean(), "\n{report}");
}

/// Asserts that `scenario` sees `bug` as a breach of `rule`.
fn assert_caught(bug: Bug, rule: Rule, scenario: &str) {
    let entry = only(&seeded(bug), scenario).unwrap();
    let caught = matches!(&entry.outcome, Outcome::Breached { breach, .. } if breach.rule == rule);
    assert!(caught, "{bug:?} is a breach of {rule}, to be seen in {entry:?}");
}

#[test]
fn a_backend_that_keeps_the_contract_passes() {
    let report = suite(&Seeded { runs: 200, ..seeded(Bug::None) });
    assert_clean(&report);
    assert_eq!(report.skipped().collect::<Vec<_>>(), []);
}

#[test]
fn a_backend_that_can_do_least_passes_what_is_left() {
    let report = suite(&Seeded { caps: least_caps(), servers: 1, ..seeded(Bug::None) });
    assert_clean(&report);
    let reasons: BTreeSet<_> = report.skipped().map(|(_, reason)| reason).collect();
    let due =
        ["CAS has no mask", "a unit is one word", "caps.fence is DeathOnly: a live client cannot be fenced"];
    let due = due.into_iter().chain(["no on-chip memory", "only one server"]);
    assert_eq!(reasons, due.collect());
}

#[test]
fn a_backend_on_real_threads_passes() {
    let report = suite(&Locked { caps: full_caps(), servers: 2, rounds: 500, split_atomics: false });
    assert_clean(&report);
    assert_eq!(report.skipped().collect::<Vec<_>>(), []);
}

#[test]
fn split_atomics_on_real_threads_are_caught() {
    let harness = Locked { caps: full_caps(), servers: 1, rounds: 2000, split_atomics: true };
    let entry = only(&harness, "additions_by_many_endpoints_sum_up_in_host_memory").unwrap();
    assert!(matches!(entry.outcome, Outcome::Breached { .. }), "{entry:?}");
}

#[test]
fn f1_breaches_are_caught() {
    let whole = "whole_units_are_never_torn";
    let parts = "parts_of_a_unit_are_written_atomically_and_alone";
    assert_caught(Bug::TornReads, Rule::F1, whole);
    assert_caught(Bug::TornReads, Rule::F1, parts);
    assert_caught(Bug::TornWrites, Rule::F1, whole);
    assert_caught(Bug::TornWrites, Rule::F1, "two_writers_of_a_unit_never_mix");
    assert_caught(Bug::TornChipWords, Rule::F1, "on_chip_words_are_never_torn");
    assert_caught(Bug::PartialWriteRewritesUnit, Rule::F1, parts);
    assert_caught(Bug::AtomicRewritesUnit, Rule::F1, "an_atomic_leaves_the_rest_of_its_unit_alone");
}

#[test]
fn f2_breaches_are_caught() {
    assert_caught(Bug::CachedReads, Rule::F2, "every_unit_of_a_read_is_from_its_window");
    assert_caught(Bug::PrefetchedReads, Rule::F2, "every_unit_of_a_read_is_from_its_window");
}

#[test]
fn f3_breaches_are_caught() {
    let own = "an_endpoint_sees_what_it_posted_before";
    assert_caught(Bug::WritesSwap, Rule::F3, "writes_of_a_list_appear_in_order");
    assert_caught(Bug::ListsSwap, Rule::F3, "writes_of_two_lists_in_flight_appear_in_order");
    assert_caught(Bug::ListsSwap, Rule::F3, "many_lists_in_flight_keep_their_order");
    assert_caught(Bug::ChipRunsAhead, Rule::F3, "an_on_chip_write_appears_after_a_host_write");
    assert_caught(Bug::HostRunsAhead, Rule::F3, "a_host_write_appears_after_an_on_chip_write");
    assert_caught(Bug::AtomicsRunAhead, Rule::F3, "an_atomic_appears_after_the_write_before_it");
    assert_caught(Bug::AtomicsRunAhead, Rule::F3, own);
    assert_caught(Bug::ReadsRunAhead, Rule::F3, own);
    assert_caught(Bug::FenceIgnored, Rule::F3, "a_fenced_write_does_not_overtake");
}

#[test]
fn f4_breaches_are_caught() {
    let lanes = "lanes_of_an_on_chip_word_do_not_disturb_each_other";
    for scenario in [
        "additions_by_many_endpoints_sum_up_in_host_memory",
        "of_concurrent_swaps_in_host_memory_exactly_one_wins",
        "a_lock_in_host_memory_excludes",
        "lanes_of_a_host_word_do_not_disturb_each_other",
    ] {
        assert_caught(Bug::SplitAtomics, Rule::F4, scenario);
    }
    assert_caught(Bug::SplitChipAtomics, Rule::F4, "additions_by_many_endpoints_sum_up_in_on_chip_memory");
    assert_caught(Bug::SplitChipAtomics, Rule::F4, "of_concurrent_swaps_in_on_chip_memory_exactly_one_wins");
    assert_caught(Bug::SplitChipAtomics, Rule::F4, "a_lock_in_on_chip_memory_excludes");
    assert_caught(Bug::MaskIgnored, Rule::F4, lanes);
    assert_caught(Bug::MaskLeaks, Rule::F4, lanes);
    assert_caught(Bug::ShortWriteRewritesWord, Rule::F4, lanes);
    assert_caught(Bug::WrongOld, Rule::F4, "an_atomic_tells_what_it_found");
}

#[test]
fn f5_breaches_are_caught() {
    let here = "what_completed_is_visible_to_the_next_owner";
    assert_caught(Bug::CompletesEarly, Rule::F5, here);
    assert_caught(Bug::CompletesEarly, Rule::F5, "what_completed_is_visible_on_every_server");
    assert_caught(Bug::CompletesEarly, Rule::F5, "a_pointer_on_one_server_follows_what_completed_on_another");
    assert_caught(Bug::LandsTwice, Rule::F5, here);
}

#[test]
fn f6_breaches_are_caught() {
    let fence = "nothing_of_a_fenced_client_executes";
    assert_caught(Bug::FenceLeavesInFlight, Rule::F6, fence);
    assert_caught(Bug::FenceMissesEndpoints, Rule::F6, fence);
    assert_caught(Bug::FenceStopsAll, Rule::F6, fence);
    assert_caught(Bug::RetireLiftsFence, Rule::F6, "a_fenced_client_stays_refused_when_its_id_is_retired");
}

#[test]
fn f7_breaches_are_caught() {
    let prefix = "a_list_that_fails_took_effect_as_a_prefix";
    let input = "bad_input_is_refused_and_changes_nothing";
    assert_caught(Bug::ErrorRunsOn, Rule::F7, prefix);
    assert_caught(Bug::ErrorLeavesGap, Rule::F7, prefix);
    assert_caught(Bug::ErrorSwallowed, Rule::F7, prefix);
    assert_caught(Bug::ErrorRunsOn, Rule::F7, input);
    assert_caught(Bug::ErrorSwallowed, Rule::F7, input);
    assert_caught(Bug::LimitsIgnored, Rule::F7, input);
}

#[test]
fn a_lost_completion_is_a_breach_and_not_a_hang() {
    let report = suite(&seeded(Bug::LosesCompletions));
    let waits = report.breaches().filter(|breach| breach.detail.contains("waits for a list to complete"));
    assert!(waits.count() > 0, "{report}");
}

#[test]
fn a_breach_can_be_replayed_from_its_seed() {
    let (harness, scenario) = (seeded(Bug::TornReads), "whole_units_are_never_torn");
    let Some(Outcome::Breached { breach, seed }) = only(&harness, scenario).map(|entry| entry.outcome) else {
        panic!("torn READs go unseen");
    };
    assert_eq!(replay(&harness, scenario, seed), Some(Err(breach)));
}

#[test]
fn the_document_names_every_scenario_under_its_rule() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FABRIC.md");
    let document = std::fs::read_to_string(path).unwrap();
    for entry in suite(&Seeded { runs: 1, ..seeded(Bug::None) }).entries {
        let chapter =
            document.split("\n### ").find(|chapter| chapter.starts_with(&entry.rule.to_string())).unwrap();
        assert!(
            chapter.contains(&format!("`{}`", entry.scenario)),
            "{} is not described under {}",
            entry.scenario,
            entry.rule
        );
    }
}
