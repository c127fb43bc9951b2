//! Tests of tickets.

use super::*;
use sherman_fabric::Space;
use sherman_fabric::tickets::{MAX_IN_FLIGHT, NO_ROOM};

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn done(flight: &mut Flight, ticket: Ticket) {
    flight.end_list(ticket, |_| Ok::<_, ()>(Ok(()))).unwrap();
}

#[test]
fn a_ticket_is_good_once() {
    let mut flight = Flight::default();
    let (a, b, c) =
        (flight.begin_list(WorkList::new(1)), flight.begin_list(WorkList::new(2)), flight.begin_call());
    assert!(flight.poll_list(a, &mut cx()).is_pending() && flight.poll_call(c, &mut cx()).is_pending());
    done(&mut flight, b);
    done(&mut flight, a);
    flight.end_call(c, Ok(Response::Done));
    let Poll::Ready(Ok(list)) = flight.poll_list(a, &mut cx()) else { panic!("{flight:?}") };
    assert_eq!(list.server(), 1);
    assert!(matches!(flight.poll_list(a, &mut cx()), Poll::Ready(Err(FabricError::Unsupported { .. }))));
    let next = flight.begin_list(WorkList::new(3));
    assert_ne!(next, a);
    assert!(flight.poll_list(a, &mut cx()).is_ready() && flight.poll_list(next, &mut cx()).is_pending());
    done(&mut flight, a);
    assert!(
        flight.poll_list(next, &mut cx()).is_pending(),
        "an old ticket's answer reached its slot's next tenant"
    );
    assert!(matches!(flight.poll_list(b, &mut cx()), Poll::Ready(Ok(list)) if list.server() == 2));
    assert_eq!(flight.poll_call(c, &mut cx()), Poll::Ready(Ok(Response::Done)));
}

#[test]
fn a_list_is_no_call_and_a_call_no_list() {
    let mut flight = Flight::default();
    let (list, call) = (flight.begin_list(WorkList::new(0)), flight.begin_call());
    assert!(matches!(flight.poll_call(list, &mut cx()), Poll::Ready(Err(NOT_A_CALL))));
    assert!(matches!(flight.poll_list(call, &mut cx()), Poll::Ready(Err(NOT_A_LIST))));
    // An answer of the wrong kind has no effect.
    flight.end_call(list, Ok(Response::Done));
    done(&mut flight, call);
    assert!(flight.poll_list(list, &mut cx()).is_pending() && flight.poll_call(call, &mut cx()).is_pending());
}

#[test]
fn what_is_forgotten_gives_its_slot_and_buffers_back() {
    let mut flight = Flight::default();
    for ended_first in [true, false] {
        let mut list = WorkList::new(0);
        list.read(Space::Host, 0, 4096);
        let (list, call) = (flight.begin_list(list), flight.begin_call());
        if ended_first {
            done(&mut flight, list);
            flight.end_call(call, Ok(Response::Done));
        }
        flight.forget(list);
        flight.forget(call);
        done(&mut flight, list);
        flight.end_call(call, Ok(Response::Done));
        let again = [flight.begin_call(), flight.begin_call()];
        assert!(again.iter().all(|ticket| ticket.slot() < 2), "both slots are free again");
        again.iter().for_each(|call| flight.end_call(*call, Ok(Response::Done)));
        assert!(again.iter().all(|call| flight.poll_call(*call, &mut cx()).is_ready()));
        assert_eq!(flight.list(3).capacity(), 4096);
        assert!(flight.take_woken().is_empty());
    }
}

#[test]
fn slots_are_bounded() {
    let mut flight = Flight::default();
    let all: Vec<Ticket> = (0..MAX_IN_FLIGHT).map(|_| flight.begin_call()).collect();
    let lost = flight.begin_list(WorkList::new(0));
    assert_eq!(lost, NO_ROOM);
    assert!(matches!(flight.poll_list(lost, &mut cx()), Poll::Ready(Err(FabricError::TooLarge { .. }))));
    flight.end_call(all[7], Ok(Response::Done));
    assert!(flight.poll_call(all[7], &mut cx()).is_ready());
    assert_ne!(flight.begin_call(), NO_ROOM);
}

#[test]
fn waiters_are_woken_once_and_in_order() {
    let mut flight = Flight::default();
    let (first, second) = (flight.begin_list(WorkList::new(0)), flight.begin_call());
    let _ = flight.poll_call(second, &mut cx());
    let _ = flight.poll_list(first, &mut cx());
    done(&mut flight, first);
    flight.end_call(second, Ok(Response::Done));
    flight.end_call(second, Ok(Response::Done));
    assert_eq!(flight.take_woken().len(), 2);
    assert!(flight.take_woken().is_empty());
}
