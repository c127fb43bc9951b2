//! The settings under which compute servers die.

use sherman_core::{Format, Techniques};
use sherman_layout::ReleaseMode;
use sherman_sim::tree::crash::Setup;
use std::collections::BTreeSet;

const FORMATS: [Format; 5] = Format::ALL;
const RELEASES: [ReleaseMode; 3] = [ReleaseMode::Write, ReleaseMode::Faa, ReleaseMode::Cas];

#[test]
fn few_setups_have_every_pair_of_settings() {
    let setups = Setup::pairwise();
    assert!(setups.len() <= 24, "{}", setups.len());
    assert_eq!(setups[0].techniques, Techniques::OURS);
    let has = |one: &dyn Fn(&Setup) -> bool| setups.iter().any(one);
    for format in FORMATS {
        assert!(
            RELEASES.iter().all(|&release| has(&|setup| setup.format == format && setup.release == release))
        );
        assert!(has(&|setup| setup.format == format && !setup.techniques.combine));
        assert!(has(&|setup| setup.format == format && setup.servers == 2));
    }
    assert!(has(&|setup| !setup.techniques.cache && setup.techniques.handover));
}

#[test]
fn every_combination_of_techniques_is_there_with_every_format() {
    let all = Setup::all();
    assert_eq!(all.len(), 64 * FORMATS.len());
    let fixed = |setup: &Setup| format!("{:?} {:?}", setup.techniques, setup.format);
    assert_eq!(all.iter().map(fixed).collect::<BTreeSet<_>>().len(), all.len());
    let turns =
        |setup: &Setup| format!("{:?} {:?} {:?} {}", setup.release, setup.width, setup.shape, setup.servers);
    assert_eq!(all.iter().map(turns).collect::<BTreeSet<_>>().len(), 36);
}
