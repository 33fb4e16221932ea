use super::*;
use proptest::prelude::*;

/// The edges as the contract words them, written a second time and independently of `next`.
fn contract_allows(from: State, to: State) -> bool {
    use State::*;
    matches!(
        (from, to),
        (Requested, Provisioning)
            | (Provisioning, Ready)
            | (Ready, Active)
            | (Ready | Active, Paused | Expired)
            | (Paused, Ready | Active | Expired)
            | (Provisioning | Ready | Active | Paused | Destroying, Failed)
            | (Requested | Provisioning | Ready | Active | Paused | Expired | Failed, Destroying)
            | (Destroying, Destroyed)
    )
}

#[test]
fn edges_are_those_of_the_contract() {
    for from in State::ALL {
        for to in State::ALL {
            assert_eq!(from.can_become(to), contract_allows(from, to), "{from} -> {to}");
        }
    }
}

#[test]
fn every_state_can_reach_destroyed() {
    for from in State::ALL {
        let mut seen = vec![from];
        let mut at = 0;
        while at < seen.len() {
            for &to in seen[at].next() {
                if !seen.contains(&to) {
                    seen.push(to);
                }
            }
            at += 1;
        }
        assert!(seen.contains(&State::Destroyed), "{from} is immortal");
    }
}

proptest! {
    #[test]
    fn no_sequence_of_steps_reaches_an_illegal_state(steps in prop::collection::vec(0usize..9, 0..40)) {
        let mut state = State::Requested;
        for index in steps {
            let to = State::ALL[index];
            match state.step(to) {
                Ok(next) => {
                    prop_assert!(contract_allows(state, next));
                    state = next;
                }
                Err(error) => {
                    prop_assert!(!contract_allows(state, to));
                    prop_assert_eq!(error.kind(), ErrorKind::IllegalState);
                }
            }
        }
    }
}

#[test]
fn names_round_trip() {
    for state in State::ALL {
        assert_eq!(state.as_str().parse::<State>().unwrap(), state);
        assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
    }
    assert!("redy".parse::<State>().unwrap_err().hint().unwrap().contains("ready"));
}
