//! The guarantees of the world itself: determinism, rewinding, quiet phases, deadlines, and correct outcomes
//! of runs.

use sherman_fabric::{
    Clock, Counters, Endpoint, Fabric, FabricError, Memory, Peer, Space, call, calls, execute, sleep_until,
    yield_now,
};
use sherman_sim::{
    Fault, Knobs, Limits, Outcome, Pct, Random, Recording, Replay, Run, Scheduler, Sim, SimConfig,
    SimEndpoint, Stuck, for_seeds,
};
use std::cell::Cell;
use std::rc::Rc;

const AT: u64 = 0x8000;

fn config() -> SimConfig {
    SimConfig { servers: 2, host_bytes: 64 << 10, ..SimConfig::default() }
}

async fn add(endpoint: &SimEndpoint, server: u16, offset: u64) -> Result<u64, FabricError> {
    let mut list = endpoint.list(server);
    let word = list.faa(Space::Host, offset, 1);
    let list = execute(endpoint, list, &Counters::default()).await?;
    let old = list.old(word);
    endpoint.recycle(list);
    Ok(old)
}

/// Spawns four clients that lock, read, write and unlock a page on either server.
fn busy(sim: &mut Sim) -> Rc<Cell<u64>> {
    let rounds = Rc::new(Cell::new(0));
    for client in 0..4u64 {
        let fabric = sim.join().unwrap();
        let endpoint = fabric.endpoint().unwrap();
        let rounds = Rc::clone(&rounds);
        sim.spawn_on(&fabric, 0, "client", async move {
            for round in 0..3 {
                let server = ((client + round) % 2) as u16;
                loop {
                    let mut list = endpoint.list(server);
                    let lock = list.cas(Space::OnChip, 0, 0, client + 1);
                    list.read(Space::Host, AT, 256);
                    let list = execute(&endpoint, list, &Counters::default()).await.unwrap();
                    let locked = list.swapped(lock);
                    endpoint.recycle(list);
                    if locked {
                        break;
                    }
                    sleep_until(&endpoint, endpoint.now() + 500).await;
                }
                let mut list = endpoint.list(server);
                list.write(Space::Host, AT, &[client as u8; 256]);
                list.write(Space::OnChip, 0, &[0; 8]);
                let list = execute(&endpoint, list, &Counters::default()).await.unwrap();
                endpoint.recycle(list);
                rounds.set(rounds.get() + 1);
            }
        });
    }
    rounds
}

fn run_busy(sim: &mut Sim, seed: u64, scheduler: &mut impl Scheduler) -> Run {
    sim.rewind_with(Knobs::swarm(seed));
    let rounds = busy(sim);
    let run = sim.run(scheduler);
    assert_eq!((&run.outcome, rounds.get()), (&Outcome::Done, 12), "seed {seed}");
    run
}

#[test]
fn the_same_seed_gives_the_same_trace_in_a_fresh_and_in_a_used_world() {
    let (mut one, mut other) = (Sim::new(&config()).unwrap(), Sim::new(&config()).unwrap());
    let mut hashes: Vec<u64> = (0..1000)
        .map(|seed| {
            let run = run_busy(&mut one, seed, &mut Random::swarm(seed));
            // The second world runs another schedule in between.
            let _ = run_busy(&mut other, !seed, &mut Pct::new(seed, 3, 500));
            assert_eq!(run, run_busy(&mut other, seed, &mut Random::swarm(seed)), "seed {seed}");
            run.trace_hash
        })
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 1000, "different seeds give different schedules");
}

#[test]
fn recorded_picks_replay_the_schedule() {
    let mut sim = Sim::new(&config()).unwrap();
    for seed in 0..50 {
        let mut recording = Recording::new(Pct::new(seed, 2, 500));
        let run = run_busy(&mut sim, seed, &mut recording);
        assert_eq!(run_busy(&mut sim, seed, &mut Replay::new(recording.into_picks())), run);
    }
}

#[test]
fn a_rewound_world_has_forgotten_the_schedule_and_kept_the_checkpoint() {
    let mut sim = Sim::new(&config()).unwrap();
    let fabric = sim.join().unwrap();
    let early = Rc::new(fabric.endpoint().unwrap());
    assert_eq!(sim.block_on(add(&early, 1, AT)), Ok(Ok(0)));
    sim.checkpoint();
    let start = sim.now();
    for _ in 0..3 {
        let late = fabric.endpoint().unwrap();
        let second = sim.join().unwrap();
        let mine = Rc::clone(&early);
        let found = sim.spawn("adds", async move { (add(&mine, 1, AT).await, add(&late, 1, AT).await) });
        assert!(sim.run(&mut Random::new(1)).is_done());
        assert_eq!(found.take(), Some((Ok(1), Ok(2))));
        sim.rewind();
        assert_eq!((sim.memory(1).load_u64(Space::Host, AT), sim.now()), (1, start));
        assert!(second.endpoint().is_err(), "it joined after the checkpoint");
    }
}

#[test]
fn an_endpoint_of_an_earlier_schedule_is_refused() {
    let mut sim = Sim::new(&config()).unwrap();
    let stale = sim.join().unwrap().endpoint().unwrap();
    sim.rewind();
    let fresh = sim.join().unwrap().endpoint().unwrap();
    let refused = sim.block_on(add(&stale, 0, AT)).unwrap();
    assert!(matches!(refused, Err(FabricError::Unsupported { .. })));
    assert_eq!(sim.block_on(add(&fresh, 0, AT)), Ok(Ok(0)));
}

#[test]
fn a_quiet_phase_executes_inline_and_counts() {
    let mut sim = Sim::new(&config()).unwrap();
    let endpoint = sim.join().unwrap().endpoint().unwrap();
    let usage = sim.block_on(async {
        let mut list = endpoint.list(0);
        list.write(Space::Host, AT, &[3; 200]);
        let read = list.read(Space::Host, AT + 100, 100);
        let list = execute(&endpoint, list, &Counters::default()).await.unwrap();
        assert_eq!(list.bytes(read), [3; 100]);
        sleep_until(&endpoint, endpoint.now() + 1_000_000).await;
        call(&endpoint, Peer::Volume(1), calls::Usage, &Counters::default()).await
    });
    assert!(matches!(usage, Ok(Ok(_))));
    assert!(sim.now() >= 1_000_000);
    let tally = endpoint.counters().read();
    assert_eq!((tally.round_trips, tally.verbs(), tally.bytes_written, tally.calls), (1, 2, 200, 1));
    assert_eq!(sim.block_on(std::future::pending::<()>()), Err(Stuck));
}

#[test]
fn a_deadlock_names_the_waiting_tasks() {
    let mut sim = Sim::new(&config()).unwrap();
    let fabric = sim.join().unwrap();
    let endpoint = fabric.endpoint().unwrap();
    sim.spawn_on(&fabric, 3, "patient", async move {
        add(&endpoint, 0, AT).await.unwrap();
        std::future::pending::<()>().await;
    });
    let Outcome::Deadlock { waiting } = sim.run(&mut Random::new(1)).outcome else { panic!("no deadlock") };
    assert_eq!(waiting.len(), 1);
    let text = waiting[0].to_string();
    assert!(text.starts_with("cs0.t3.patient waits; its last list on server 0 began with Faa"), "{text}");
}

#[test]
fn a_run_that_does_not_end_is_ended() {
    let mut sim =
        Sim::new(&SimConfig { limits: Limits { steps: 500, lists_per_task: 20 }, ..config() }).unwrap();
    sim.spawn("spins", async {
        loop {
            yield_now().await;
        }
    });
    let run = sim.run(&mut Random::new(1));
    assert_eq!((run.outcome, run.steps), (Outcome::StepLimit, 500));
    sim.rewind();
    let endpoint = sim.join().unwrap().endpoint().unwrap();
    sim.spawn("retries", async move { while add(&endpoint, 0, AT).await.is_ok() {} });
    assert_eq!(sim.run(&mut Random::new(1)).outcome, Outcome::ListLimit);
}

#[test]
fn every_timer_wakes_even_if_an_earlier_one_was_set_later() {
    let mut sim = Sim::new(&config()).unwrap();
    let endpoint = sim.join().unwrap().endpoint().unwrap();
    let woken = sim.spawn("sleeper", async move {
        let deadline = endpoint.now() + 1_000_000;
        let mut set = false;
        std::future::poll_fn(|cx| {
            if !std::mem::replace(&mut set, true) {
                endpoint.wake_at(deadline, cx.waker());
                endpoint.wake_at(10, cx.waker());
            }
            if endpoint.now() >= deadline { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        endpoint.now()
    });
    assert!(sim.run(&mut Random::new(1)).is_done());
    assert!(woken.take().unwrap() >= 1_000_000);
}

#[test]
fn time_jumps_past_a_deadline_while_others_are_busy() {
    let mut sim = Sim::new(&config()).unwrap();
    let (mut early, mut late) = (0, 0);
    for_seeds(
        &mut sim,
        0..300,
        |sim, _| {
            sim.rewind_with(Knobs { time_jumps: true, ..Knobs::default() });
            let endpoint = Rc::new(sim.join().unwrap().endpoint().unwrap());
            let clock = Rc::clone(&endpoint);
            let done = Rc::new(Cell::new(false));
            let seen = Rc::clone(&done);
            sim.spawn("worker", async move {
                for _ in 0..20 {
                    add(&endpoint, 0, AT).await.unwrap();
                }
                done.set(true);
            });
            sim.spawn("deadline", async move {
                sleep_until(&*clock, 1_000_000_000).await;
                seen.get()
            })
        },
        Random::new,
        |_, finished, run| {
            assert!(run.is_done());
            if finished.take().unwrap() { late += 1 } else { early += 1 }
        },
    );
    assert!(early > 20 && late > 20, "{early} early, {late} late");
}

#[test]
fn a_lost_server_answers_nothing_and_the_other_goes_on() {
    let mut sim = Sim::new(&config()).unwrap();
    for step in 0..40 {
        sim.rewind();
        sim.fault_at(step, Fault::Lose { server: 1 });
        let endpoint = sim.join().unwrap().endpoint().unwrap();
        let ended = sim.spawn("both", async move {
            let lost = loop {
                if let Err(error) = add(&endpoint, 1, AT).await {
                    break error;
                }
            };
            let asked = call(&endpoint, Peer::Volume(1), calls::Usage, &Counters::default()).await;
            (lost, asked.is_err(), add(&endpoint, 0, AT).await)
        });
        assert!(sim.run(&mut Random::new(step)).is_done());
        assert_eq!(ended.take(), Some((FabricError::ServerLost { server: 1 }, true, Ok(0))));
    }
}

#[test]
fn a_forgotten_list_still_executes() {
    let mut sim = Sim::new(&config()).unwrap();
    for seed in 0..100 {
        sim.rewind();
        let endpoint = sim.join().unwrap().endpoint().unwrap();
        sim.spawn("careless", async move {
            let mut list = endpoint.list(0);
            list.write(Space::Host, AT, &[1; 256]);
            drop(execute(&endpoint, list, &Counters::default()));
        });
        assert!(sim.run(&mut Random::new(seed)).is_done());
        let mut bytes = [0; 256];
        sim.memory(0).load(Space::Host, AT, &mut bytes);
        assert_eq!(bytes, [1; 256]);
    }
}

#[test]
fn tasks_spawn_tasks_and_wait_for_them() {
    let mut sim = Sim::new(&config()).unwrap();
    let fabric = sim.join().unwrap();
    let endpoint = Rc::new(fabric.endpoint().unwrap());
    let spawner = sim.spawner();
    let sum = sim.spawn("parent", async move {
        let children: Vec<_> =
            (0..5)
                .map(|child| {
                    let endpoint = Rc::clone(&endpoint);
                    spawner.spawn(Some(&fabric), child, "child", async move {
                        add(&endpoint, 0, AT).await.unwrap()
                    })
                })
                .collect();
        let mut sum = 0;
        for child in children {
            sum += child.await;
        }
        sum
    });
    assert!(sim.run(&mut Pct::new(3, 2, 100)).is_done());
    assert_eq!(sum.take(), Some(10));
}
