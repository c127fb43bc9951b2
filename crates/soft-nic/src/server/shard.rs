//! A shard: one thread, its connections and their events.
//!
//! It runs one loop: wait for events, serve each connection that has some, check the calls that wait, greet
//! new connections, enforce deadlines. It serves a connection for one receive at a time, plus the remainder
//! of the last one. So one busy client does not starve the others. The shard owns all buffers and lends them
//! to the connection that it serves.

use super::accept::farewell;
use super::connection::{Connection, Further, Phase};
use super::counters::{Reason, Tally};
use super::execute::Work;
use super::greet::{self, goodbye};
use super::input::{RECEIVE, Received, SCRATCH};
use super::mailbox::{Reply, Token};
use super::out::Out;
use super::shared::Shared;
use fastrand::Rng;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use sherman_control::auth;
use sherman_control::pace::Pace;
use sherman_control::wire::{GoodbyeCode, HEADER_BYTES, MAX_REPLY};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most events taken at a time.
const EVENTS: usize = 256;
/// The event number of the mailbox.
const MAIL: u64 = u64::MAX;
/// How long a connection may take to hang up after the goodbye.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a stopping server waits for its clients to hang up.
const STOPPING: Duration = Duration::from_millis(300);
/// The longest sleep while a call waits.
const WAITING: Duration = Duration::from_micros(200);
/// The most receives from one connection in a row, if each fills the buffer.
const RECEIVES: usize = 4;
/// The most bytes of an arena that a shard keeps for the next connection.
const ARENA: usize = 1 << 20;

/// Whether a connection stays open.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    Ends,
}

/// A slot for a connection. The index and the number of uses name the connection.
#[derive(Debug, Default)]
struct ConnectionSlot {
    connection: Option<Box<Connection>>,
    uses: u32,
}

/// One thread's connections.
pub(super) struct Shard {
    shared: Arc<Shared>,
    index: usize,
    epoll: OwnedFd,
    places: Vec<ConnectionSlot>,
    free: Vec<u32>,
    /// Connections whose handshake is not done or was refused, oldest first. Some of them may be gone or
    /// admitted by now.
    newcomers: VecDeque<Token>,
    /// How many connections have not finished their handshake.
    unadmitted: usize,
    /// Connections that must introduce themselves, with their deadlines, oldest first.
    greeting: VecDeque<(Instant, Token)>,
    /// Connections without a member that must send a frame again, with their deadlines, oldest first.
    idle: VecDeque<(Instant, Token)>,
    /// Connections that must hang up, with their deadlines, oldest first.
    closing: VecDeque<(Instant, Token)>,
    /// Connections whose calls wait.
    waiting: Vec<Token>,
    scratch: Vec<u8>,
    /// The arena for replies, while no connection has it.
    arena: Out,
    random: Rng,
    pace: Pace,
    /// How many fences the shard has already applied to its connections.
    fences: u64,
}

impl Shard {
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &shared.mailboxes[index], EventData::new_u64(MAIL), EventFlags::IN)?;
        Ok(Self {
            random: Rng::with_seed(shared.boot ^ index as u64),
            shared,
            index,
            epoll,
            places: Vec::new(),
            free: Vec::new(),
            newcomers: VecDeque::new(),
            unadmitted: 0,
            greeting: VecDeque::new(),
            idle: VecDeque::new(),
            closing: VecDeque::new(),
            waiting: Vec::new(),
            scratch: vec![0; SCRATCH],
            arena: Out::default(),
            pace: Pace::default(),
            fences: 0,
        })
    }

    /// Serves until the server stops.
    pub(super) fn run(mut self) {
        let _stopper = StopWithMe(Arc::clone(&self.shared));
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        while !self.shared.is_stopping() {
            self.wait(&mut events);
            for event in &events {
                match event.data.u64() {
                    MAIL => {}
                    number => self.serve(Token::of(number), event.flags),
                }
            }
            self.look_again();
            // Last, so that no event of this round is taken for an event of a new connection in the same
            // slot.
            if events.iter().any(|event| event.data.u64() == MAIL) {
                let mail = self.shared.mailboxes[self.index].take();
                self.deliver(mail.replies);
                self.take_in(mail.sockets);
                self.tell_fenced();
            }
            self.see_to_deadlines();
        }
        self.farewell(&mut events);
    }

    /// Waits for events: polls, polls again for a while, then sleeps.
    fn wait(&mut self, events: &mut Vec<Event>) {
        self.poll(events, Duration::ZERO);
        if !events.is_empty() {
            return;
        }
        let began = Instant::now();
        let now = || began.elapsed().as_nanos() as u64;
        let mut rounds = 0;
        while self.pace.spins(rounds, true, now) {
            self.poll(events, Duration::ZERO);
            if !events.is_empty() {
                return;
            }
            rounds += 1;
        }
        let until = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let most = if self.waiting.is_empty() { None } else { Some(WAITING) };
        let limit = [until, most].into_iter().flatten().min();
        self.poll(events, limit.unwrap_or(Duration::MAX));
        self.pace.slept(now());
    }

    fn poll(&self, events: &mut Vec<Event>, limit: Duration) {
        events.clear();
        let limit = Timespec::try_from(limit).ok();
        // On an interrupt there are no events. A lasting error shows again in the next round.
        let _ = epoll::wait(&self.epoll, spare_capacity(events), limit.as_ref());
    }

    fn place(&mut self, token: Token) -> Option<&mut ConnectionSlot> {
        self.places.get_mut(token.index as usize).filter(|place| place.uses == token.uses)
    }

    fn phase(&self, token: Token) -> Option<&Phase> {
        let place = self.places.get(token.index as usize).filter(|place| place.uses == token.uses)?;
        place.connection.as_ref().map(|connection| &connection.phase)
    }

    /// Serves a connection that has events.
    fn serve(&mut self, token: Token, events: EventFlags) {
        let broken = events.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.with(token, |shard, connection, out, tally| {
            // Such a connection receives nothing, so it would not notice this while the plane is silent.
            if broken && connection.waits_for_plane() {
                return Fate::Ends;
            }
            shard.receive(connection, out, tally)
        });
    }

    /// Lends the shard's buffers to a connection, and updates the state of both afterwards.
    fn with(
        &mut self,
        token: Token,
        act: impl FnOnce(&mut Self, &mut Connection, &mut Out, &mut Tally) -> Fate,
    ) {
        let Some(mut connection) = self.place(token).and_then(|place| place.connection.take()) else {
            return;
        };
        let mut out = connection.out.take().unwrap_or_else(|| std::mem::take(&mut self.arena));
        let mut tally = Tally::default();
        let was_closing = matches!(connection.phase, Phase::Closing);
        let was_new = !connection.admitted;
        let mut fate = act(self, &mut connection, &mut out, &mut tally);
        self.shared.counters[self.index].add(&tally);
        if fate == Fate::Stays {
            fate = self.settle(token, &mut connection, out);
        } else {
            self.keep_arena(out);
        }
        if was_new && (connection.admitted || fate == Fate::Ends) {
            self.unadmitted -= 1;
        }
        if fate == Fate::Ends {
            self.remove(token, *connection);
            return;
        }
        if !was_closing && matches!(connection.phase, Phase::Closing) {
            self.closing.push_back((Instant::now() + FAREWELL, token));
        }
        if was_new && let Some(until) = connection.idle_until(self.shared.limits.idle_time) {
            self.idle.push_back((until, token));
        }
        if connection.is_waiting() && !self.waiting.contains(&token) {
            self.waiting.push(token);
        }
        if let Some(place) = self.place(token) {
            place.connection = Some(connection);
        }
    }

    /// Receives, executes and sends.
    fn receive(&mut self, connection: &mut Connection, out: &mut Out, tally: &mut Tally) -> Fate {
        match connection.send(out, tally) {
            Ok(true) if !connection.is_blocked() => {}
            Ok(_) => return Fate::Stays,
            Err(_) => return Fate::Ends,
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut fate = Fate::Stays;
        for _ in 0..RECEIVES {
            let mut bytes = 0;
            let received = connection.input.receive(&connection.socket, &mut scratch, &mut bytes);
            tally.bytes_in += bytes;
            let owned;
            let input = match received {
                Received::Scratch(len) => &scratch[..len],
                Received::Owned(bytes) => {
                    owned = bytes;
                    &owned[..]
                }
                Received::TooLittle => continue,
                Received::Nothing => break,
                Received::Gone => {
                    fate = Fate::Ends;
                    break;
                }
            };
            match self.execute(connection, input, out, tally) {
                // The buffer was full, so there may be more.
                Ok(true) if bytes >= RECEIVE as u64 => {}
                Ok(_) => break,
                Err(Gone) => {
                    fate = Fate::Ends;
                    break;
                }
            }
        }
        self.scratch = scratch;
        fate
    }

    /// Executes the received bytes and sends the replies. Returns whether more may be received.
    fn execute(
        &mut self,
        connection: &mut Connection,
        input: &[u8],
        out: &mut Out,
        tally: &mut Tally,
    ) -> Result<bool, Gone> {
        let mut used = 0;
        loop {
            let mut work = Work {
                shared: &self.shared,
                who: connection.who(),
                counters: &self.shared.counters[self.index],
                tally,
                random: &mut self.random,
                mailbox: &self.shared.mailboxes[self.index],
            };
            let (more, further) = connection.advance(&mut work, &input[used..], out);
            used += more;
            // Counts the work before its replies are sent.
            self.shared.counters[self.index].add(&std::mem::take(tally));
            let sent = connection.send(out, tally).map_err(|_| Gone)?;
            let needed = match further {
                Further::Need(needed) => needed,
                Further::Send if sent => continue,
                Further::Send | Further::Wait => 0,
                Further::Closing => return Ok(false),
            };
            connection.input.keep(input, used, needed);
            return Ok(sent && needed != 0);
        }
    }

    /// Finishes the service of a connection: keeps its unsent bytes, charges it for the memory it holds, and
    /// registers it for the events it waits for.
    fn settle(&mut self, token: Token, connection: &mut Connection, mut out: Out) -> Fate {
        let blocked = !out.ready().is_empty();
        if out.is_empty() {
            self.keep_arena(out);
        } else if let Some(small) = out.split_off() {
            connection.out = Some(small);
            self.keep_arena(out);
        } else {
            connection.out = Some(out);
        }
        let held = connection.held() + connection.out.as_ref().map_or(0, Out::held);
        let affordable = self.shared.recharge(connection.charged, held);
        let grown = held > connection.charged;
        connection.charged = held;
        if !affordable && grown {
            self.shared.refused(
                Reason::Overloaded,
                Some(connection.who()),
                "clients that do not read their replies fill the memory for replies",
            );
            return Fate::Ends;
        }
        let interest = match (blocked, connection.is_blocked()) {
            (true, _) => EventFlags::OUT,
            (false, true) if connection.waits_for_plane() => EventFlags::RDHUP,
            // A broken connection is reported even so, but only once until the call has ended.
            (false, true) => EventFlags::ONESHOT,
            (false, false) => EventFlags::IN,
        };
        if interest != connection.interest {
            let data = EventData::new_u64(token.number());
            if epoll::modify(&self.epoll, &connection.socket, data, interest).is_err() {
                return Fate::Ends;
            }
            connection.interest = interest;
        }
        Fate::Stays
    }

    /// Takes back an arena that a connection no longer needs.
    fn keep_arena(&mut self, mut out: Out) {
        if self.arena.held() < out.held() {
            out.reset(ARENA.max(self.shared.limits.high_water + MAX_REPLY as usize / 4 + HEADER_BYTES));
            self.arena = out;
        }
    }

    fn remove(&mut self, token: Token, mut connection: Connection) {
        connection.leave_session(&self.shared);
        self.shared.close_connection(connection.admitted, connection.charged);
        // No other descriptor refers to the socket, so closing it removes it from the epoll set.
        drop(connection);
        if let Some(place) = self.place(token) {
            place.uses = place.uses.wrapping_add(1);
            self.free.push(token.index);
        }
    }

    /// Checks the calls that wait.
    fn look_again(&mut self) {
        for token in std::mem::take(&mut self.waiting) {
            self.with(token, |shard, connection, out, tally| {
                if !connection.look_again(&shared_of(shard), out) {
                    return Fate::Stays;
                }
                shard.receive(connection, out, tally)
            });
        }
    }

    /// Gives the control plane's answers to the connections that still wait for them.
    fn deliver(&mut self, replies: Vec<Reply>) {
        for Reply { token, tag, answer } in replies {
            self.with(token, |shard, connection, out, tally| {
                let was_blocked = connection.waits_for_plane();
                if !connection.take_answer(tag, &answer, out) {
                    return Fate::Stays;
                }
                if was_blocked {
                    return shard.receive(connection, out, tally);
                }
                if connection.send(out, tally).is_ok() { Fate::Stays } else { Fate::Ends }
            });
        }
    }

    /// Greets new connections.
    fn take_in(&mut self, sockets: Vec<OwnedFd>) {
        for socket in sockets {
            if let Err(error) = self.greet(socket) {
                self.shared.refused(Reason::Internal, None, error);
                self.shared.close_connection(false, 0);
            }
        }
    }

    /// Closes the connections of clients that were fenced since the last call.
    fn tell_fenced(&mut self) {
        let fences = self.shared.fences();
        if std::mem::replace(&mut self.fences, fences) == fences {
            return;
        }
        let is_fenced = |place: &ConnectionSlot| {
            place.connection.as_ref().is_some_and(|connection| connection.is_fenced())
        };
        let tokens = (0..).zip(&self.places).filter(|(_, place)| is_fenced(place));
        let tokens: Vec<_> = tokens.map(|(index, place)| Token { index, uses: place.uses }).collect();
        for token in tokens {
            self.with(token, |shard, connection, out, tally| {
                connection.say_goodbye(&shared_of(shard), &goodbye(GoodbyeCode::Fenced), out);
                if connection.send(out, tally).is_ok() { Fate::Stays } else { Fate::Ends }
            });
        }
    }

    /// When to close the connection if it stays silent.
    fn idle_until(&self, token: Token) -> Option<Instant> {
        let place = self.places.get(token.index as usize).filter(|place| place.uses == token.uses)?;
        place.connection.as_ref()?.idle_until(self.shared.limits.idle_time)
    }

    /// Whether the connection is still a newcomer.
    fn is_newcomer(&self, token: Token) -> bool {
        let place = self.places.get(token.index as usize).filter(|place| place.uses == token.uses);
        place.and_then(|place| place.connection.as_ref()).is_some_and(|connection| !connection.admitted)
    }

    /// Makes room for one more newcomer: closes the oldest ones if the limit is reached.
    fn make_room(&mut self) {
        let limit = self.shared.newcomers_per_shard();
        // At least half of the tokens are then old, so each token costs little.
        if self.newcomers.len() >= 2 * limit {
            let mut newcomers = std::mem::take(&mut self.newcomers);
            newcomers.retain(|token| self.is_newcomer(*token));
            self.newcomers = newcomers;
        }
        while self.unadmitted >= limit
            && let Some(oldest) = self.newcomers.pop_front()
        {
            if !self.is_newcomer(oldest) {
                continue;
            }
            // Closes it at once: a lingering connection would take a place of the next one.
            self.with(oldest, |shard, connection, _, _| {
                let detail = format_args!(
                    "{limit} connections wait for their handshake: the server closes the oldest"
                );
                shard.shared.refused(Reason::TooManyNewcomers, Some(connection.who()), detail);
                farewell(&connection.socket, GoodbyeCode::TooManyConnections);
                Fate::Ends
            });
        }
    }

    fn greet(&mut self, socket: OwnedFd) -> io::Result<()> {
        self.make_room();
        let nonce = auth::nonce().map_err(io::Error::other)?;
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.places.push(ConnectionSlot::default());
                self.places.len() as u32 - 1
            }
        };
        let token = Token { index, uses: self.places[index as usize].uses };
        let data = EventData::new_u64(token.number());
        if let Err(error) = epoll::add(&self.epoll, &socket, data, EventFlags::IN) {
            self.free.push(index);
            return Err(error.into());
        }
        self.places[index as usize].connection = Some(Box::new(Connection::new(socket, token, nonce)));
        self.newcomers.push_back(token);
        self.unadmitted += 1;
        self.greeting.push_back((Instant::now() + self.shared.limits.handshake_time, token));
        let hello = greet::hello(&self.shared, nonce);
        self.with(token, |_, connection, out, tally| {
            out.put(&hello);
            if connection.send(out, tally).is_ok() { Fate::Stays } else { Fate::Ends }
        });
        Ok(())
    }

    /// The first deadline. Removes connections that are no longer in the phase of their deadline.
    fn next_deadline(&mut self) -> Option<Instant> {
        while let Some((_, token)) = self.greeting.front()
            && !matches!(self.phase(*token), Some(Phase::Greeting(_)))
        {
            self.greeting.pop_front();
        }
        while let Some((_, token)) = self.closing.front()
            && self.phase(*token).is_none()
        {
            self.closing.pop_front();
        }
        while let Some((_, token)) = self.idle.front()
            && self.idle_until(*token).is_none()
        {
            self.idle.pop_front();
        }
        let first = |queue: &VecDeque<(Instant, Token)>| queue.front().map(|(at, _)| *at);
        [first(&self.greeting), first(&self.idle), first(&self.closing)].into_iter().flatten().min()
    }

    /// Ends the connections that are late.
    fn see_to_deadlines(&mut self) {
        if self.greeting.is_empty() && self.idle.is_empty() && self.closing.is_empty() {
            return;
        }
        let now = Instant::now();
        while self.next_deadline().is_some_and(|at| at <= now) {
            if let Some((_, token)) = self.greeting.pop_front_if(|(at, _)| *at <= now)
                && matches!(self.phase(token), Some(Phase::Greeting(_)))
            {
                self.with(token, |shard, connection, out, tally| {
                    connection.say_goodbye(&shared_of(shard), &goodbye(GoodbyeCode::TooSlow), out);
                    if connection.send(out, tally).is_ok() { Fate::Stays } else { Fate::Ends }
                });
            }
            if let Some((_, token)) = self.idle.pop_front_if(|(at, _)| *at <= now) {
                match self.idle_until(token) {
                    // The peer has sent a frame since.
                    Some(until) if until > now => self.idle.push_back((until, token)),
                    Some(_) => self.with(token, |shard, connection, out, tally| {
                        connection.say_goodbye(&shared_of(shard), &goodbye(GoodbyeCode::Idle), out);
                        if connection.send(out, tally).is_ok() { Fate::Stays } else { Fate::Ends }
                    }),
                    None => {}
                }
            }
            if let Some((_, token)) = self.closing.pop_front_if(|(at, _)| *at <= now) {
                self.with(token, |_, _, _, _| Fate::Ends);
            }
        }
    }

    /// Says goodbye to every client and waits a little for them to hang up.
    fn farewell(&mut self, events: &mut Vec<Event>) {
        let mail = self.shared.mailboxes[self.index].take();
        self.take_in(mail.sockets);
        let until = Instant::now() + STOPPING;
        let tokens = (0..).zip(&self.places).map(|(index, place)| Token { index, uses: place.uses });
        for token in tokens.collect::<Vec<_>>() {
            self.with(token, |shard, connection, out, tally| {
                if !matches!(connection.phase, Phase::Closing) {
                    connection.say_goodbye(&shared_of(shard), &goodbye(GoodbyeCode::ShuttingDown), out);
                }
                if connection.send(out, tally).is_ok() { Fate::Stays } else { Fate::Ends }
            });
        }
        while self.places.iter().any(|place| place.connection.is_some()) && Instant::now() < until {
            self.poll(events, Duration::from_millis(20));
            for event in events.iter().filter(|event| event.data.u64() != MAIL) {
                self.serve(Token::of(event.data.u64()), event.flags);
            }
        }
    }
}

/// The client is gone.
struct Gone;

fn shared_of(shard: &Shard) -> Arc<Shared> {
    Arc::clone(&shard.shared)
}

/// A shard that fails stops the whole server, so that its connections do not hang.
struct StopWithMe(Arc<Shared>);

impl Drop for StopWithMe {
    fn drop(&mut self) {
        self.0.stop();
    }
}
