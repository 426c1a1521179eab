//! Servers with queues, request by request: for experiments about a dispatcher and the servers behind it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Classes of requests; higher ones go first where classes count.
pub const CLASSES: usize = 8;

/// A request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// When it arrived, ns.
    pub at_ns: u64,
    /// Time it takes on a server of speed 1, ns.
    pub work_ns: u64,
    /// Class, below [`CLASSES`].
    pub class: u8,
    /// Kind.
    pub kind: u16,
}

/// A request that a server has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The request.
    pub request: Request,
    /// The server.
    pub server: usize,
    /// When, ns.
    pub at_ns: u64,
}

impl Done {
    /// Time from arrival to end, ns.
    pub fn response_ns(&self) -> u64 {
        self.at_ns - self.request.at_ns
    }
}

/// One server: a queue for each class, one request at a time, nothing preempted.
#[derive(Clone, Debug)]
struct Server {
    speed_milli: u64,
    queues: [VecDeque<Request>; CLASSES],
    /// Work that waits, by class, ns of this server.
    waiting_ns: [u64; CLASSES],
    serving: Option<(Request, u64)>,
}

impl Server {
    fn time_ns(&self, request: &Request) -> u64 {
        request.work_ns * 1000 / self.speed_milli
    }

    fn start(&mut self, now_ns: u64) -> Option<u64> {
        let class = (0..CLASSES).rev().find(|class| !self.queues[*class].is_empty())?;
        let request = self.queues[class].pop_front()?;
        let time_ns = self.time_ns(&request);
        self.waiting_ns[class] -= time_ns;
        self.serving = Some((request, now_ns + time_ns));
        Some(now_ns + time_ns)
    }
}

/// Servers of different speed.
#[derive(Clone, Debug)]
pub struct Farm {
    servers: Vec<Server>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    by_class: bool,
}

impl Farm {
    /// Idle servers of these speeds, thousandths. `by_class`: the highest class first; else all in order of arrival.
    pub fn new(speeds_milli: &[u16], by_class: bool) -> Self {
        let server = |speed_milli: &u16| Server {
            speed_milli: u64::from((*speed_milli).max(1)),
            queues: Default::default(),
            waiting_ns: [0; CLASSES],
            serving: None,
        };
        Self { servers: speeds_milli.iter().map(server).collect(), ends: BinaryHeap::new(), by_class }
    }

    /// When the next request ends, ns.
    pub fn next_end_ns(&self) -> Option<u64> {
        self.ends.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Ends the next request.
    pub fn finish(&mut self) -> Option<Done> {
        let Reverse((at_ns, index)) = self.ends.pop()?;
        let server = &mut self.servers[index];
        let (request, _) = server.serving.take()?;
        if let Some(end_ns) = server.start(at_ns) {
            self.ends.push(Reverse((end_ns, index)));
        }
        Some(Done { request, server: index, at_ns })
    }

    /// Gives a request to a server at `now_ns`, by when all ends before it are taken.
    pub fn submit(&mut self, now_ns: u64, index: usize, request: Request) {
        let server = &mut self.servers[index];
        let class = if self.by_class { usize::from(request.class).min(CLASSES - 1) } else { 0 };
        server.waiting_ns[class] += server.time_ns(&request);
        server.queues[class].push_back(request);
        if server.serving.is_none()
            && let Some(end_ns) = server.start(now_ns)
        {
            self.ends.push(Reverse((end_ns, index)));
        }
    }

    /// Work at a server, ns of that server.
    pub fn backlog_ns(&self, index: usize, now_ns: u64) -> u64 {
        let (serving_ns, waiting_ns) = self.work_ns(index, now_ns);
        serving_ns + waiting_ns.iter().sum::<u64>()
    }

    /// What is left of the request in service, and the work that waits by class, ns of that server.
    pub fn work_ns(&self, index: usize, now_ns: u64) -> (u64, [u64; CLASSES]) {
        let server = &self.servers[index];
        (server.serving.map_or(0, |(_, end_ns)| end_ns.saturating_sub(now_ns)), server.waiting_ns)
    }

    /// Requests at a server, the one in service included.
    pub fn present(&self, index: usize) -> u32 {
        let server = &self.servers[index];
        (server.queues.iter().map(VecDeque::len).sum::<usize>() + usize::from(server.serving.is_some())) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at_ns: u64, work_ns: u64, class: u8) -> Request {
        Request { at_ns, work_ns, class, kind: 0 }
    }

    fn ends(farm: &mut Farm) -> Vec<(u64, u8)> {
        std::iter::from_fn(|| farm.finish()).map(|done| (done.at_ns, done.request.class)).collect()
    }

    #[test]
    fn a_fast_server_is_fast_and_serves_in_order() {
        let mut farm = Farm::new(&[2000], false);
        farm.submit(0, 0, request(0, 100, 0));
        farm.submit(0, 0, request(0, 200, 7));
        assert_eq!((farm.backlog_ns(0, 10), farm.present(0)), (140, 2));
        assert_eq!(ends(&mut farm), [(50, 0), (150, 7)]);
        assert_eq!((farm.backlog_ns(0, 150), farm.present(0)), (0, 0));
    }

    #[test]
    fn high_classes_go_first_but_stop_nobody() {
        let mut farm = Farm::new(&[1000], true);
        for class in [0, 0, 7] {
            farm.submit(0, 0, request(0, 100, class));
        }
        let (serving_ns, waiting_ns) = farm.work_ns(0, 30);
        assert_eq!((serving_ns, waiting_ns[0], waiting_ns[7]), (70, 100, 100));
        assert_eq!(ends(&mut farm), [(100, 0), (200, 7), (300, 0)]);
    }
}
