//! Control requests with the types of their replies.
//!
//! [`Request`] and [`Response`] are what crosses the wire: any response could follow any request. A [`Call`]
//! says which response belongs to it. So a caller gets the reply itself, and a server that answers with
//! anything else gives one error, [`FabricError::UnexpectedReply`].

use crate::control::{
    CatalogReply, ChunkClass, Extent, MemberInfo, Renewal, RequestId, ServerInfo, Span, Spreading, TreeInfo,
    TreeSpec, Usage as InUse, Verdict,
};
use crate::group::{Admission, ClusterInfo, CopyProgress, HostOffer, Registration, Store};
use crate::{ComputeId, FabricError, Request, Response, ServerStats, TreeTypes};

/// A control request whose reply has a type.
pub trait Call {
    /// The reply's type.
    type Reply;

    /// The request's name, for errors.
    const NAME: &'static str;

    /// The request as it crosses the wire.
    fn request(self) -> Request;

    /// The reply in `response`, or `None` if the response belongs to another request.
    fn reply(response: Response) -> Option<Self::Reply>;

    /// The reply in `response`.
    ///
    /// # Errors
    /// [`FabricError::UnexpectedReply`] if the response belongs to another request.
    fn expect(response: Response) -> Result<Self::Reply, FabricError> {
        Self::reply(response).ok_or(Self::UNEXPECTED)
    }

    /// The error of a reply that does not fit the request.
    const UNEXPECTED: FabricError = FabricError::UnexpectedReply { request: Self::NAME };
}

/// A request whose kind is known only at run time. Its reply may be any response.
impl Call for Request {
    type Reply = Response;

    const NAME: &'static str = "Request";

    fn request(self) -> Request {
        self
    }

    fn reply(response: Response) -> Option<Response> {
        Some(response)
    }
}

macro_rules! define {
    ($name:ident) => {
        #[doc = concat!("[`Request::", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name;
    };
    ($name:ident { $($field:ident: $type:ty),+ }) => {
        #[doc = concat!("[`Request::", stringify!($name), "`].")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $(
                #[doc = concat!("As in [`Request::", stringify!($name), "`].")]
                pub $field: $type,
            )+
        }
    };
}

/// One row for each request: its fields, the type of its reply, and where the response holds that.
macro_rules! calls {
    ($($name:ident $({ $($field:ident: $type:ty),+ })? -> $reply:ty = $response:pat => $value:expr;)+) => {
        $(
            define!($name $({ $($field: $type),+ })?);

            impl Call for $name {
                type Reply = $reply;

                const NAME: &'static str = stringify!($name);

                fn request(self) -> Request {
                    Request::$name $({ $($field: self.$field),+ })?
                }

                fn reply(response: Response) -> Option<$reply> {
                    match response {
                        $response => Some($value),
                        _ => None,
                    }
                }
            }
        )+
    };
}

calls! {
    Join -> ComputeId = Response::Joined { client } => client;
    Activate -> u32 = Response::Active { incarnation } => incarnation;
    Release -> () = Response::Done => ();
    Leave -> () = Response::Done => ();
    AllocSpans { class: ChunkClass, count: u16 } -> Vec<Span> = Response::Spans(spans) => spans;
    FreeSpans { spans: Vec<(u64, bool)> } -> () = Response::Done => ();
    SpansOf { client: ComputeId, from: u64 } -> Vec<Span> = Response::Spans(spans) => spans;
    RedoArea -> Extent = Response::RedoArea(area) => area;
    CreateTree { name: String, spec: TreeSpec, types: Option<TreeTypes>, asked: RequestId } -> CatalogReply
        = Response::Tree(tree) => tree;
    OpenTree { name: String } -> CatalogReply = Response::Tree(tree) => tree;
    ListTrees -> Vec<TreeInfo> = Response::Trees(trees) => trees;
    DropTree { name: String, id: u32 } -> () = Response::Done => ();
    Fence { client: ComputeId } -> () = Response::Done => ();
    Usage -> InUse = Response::Usage(usage) => usage;
    Renew -> Renewal = Response::Renewed(renewal) => renewal;
    Short -> Renewal = Response::Renewed(renewal) => renewal;
    Depart -> () = Response::Done => ();
    Suspect { client: ComputeId } -> Verdict = Response::Verdict(verdict) => verdict;
    Condemn { client: ComputeId } -> () = Response::Done => ();
    Succeed { client: ComputeId, incarnation: u32 } -> Verdict = Response::Verdict(verdict) => verdict;
    Retire { client: ComputeId } -> () = Response::Done => ();
    FreeId { client: ComputeId } -> () = Response::Done => ();
    Relieve { client: ComputeId } -> () = Response::Done => ();
    Members -> Vec<MemberInfo> = Response::Members(members) => members;
    Servers -> Vec<ServerInfo> = Response::Servers(servers) => servers;
    DeclareLost { server: u16 } -> () = Response::Done => ();
    Stats -> ServerStats = Response::Stats(stats) => *stats;
    Volumes -> Vec<u8> = Response::Volumes(table) => table;
    Mirror { copy: u16, epoch: u64, number: u64, stores: Vec<Store>, fenced: Option<ComputeId> } -> ()
        = Response::Done => ();
    Cluster -> ClusterInfo = Response::Cluster(info) => *info;
    Register { offer: HostOffer } -> Registration = Response::Registered(registration) => *registration;
    Return { host: u16, incarnation: u32, offer: HostOffer } -> Registration
        = Response::Registered(registration) => *registration;
    Alive { host: u16, incarnation: u32, progress: Vec<CopyProgress> } -> () = Response::Done => ();
    Copied { copy: u16 } -> () = Response::Done => ();
    Settled { copy: u16, epoch: u64 } -> () = Response::Done => ();
    Drain { host: u16, cancel: bool } -> () = Response::Done => ();
    Rebalance { when: Spreading } -> () = Response::Done => ();
    Digest { copy: u16, offset: u64, len: u32 } -> Vec<u64> = Response::Digests(digests) => digests;
}

/// [`Request::Join`] to the leader of a group, whose answer says more than an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinGroup;

impl Call for JoinGroup {
    type Reply = Admission;

    const NAME: &'static str = "Join";

    fn request(self) -> Request {
        Request::Join
    }

    fn reply(response: Response) -> Option<Admission> {
        match response {
            Response::Admitted(admission) => Some(*admission),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_another_request_is_one_typed_error() {
        let joined = || Response::Joined { client: ComputeId(1) };
        assert_eq!(Join::expect(joined()), Ok(ComputeId(1)));
        assert_eq!(Request::expect(joined()), Ok(joined()));
        assert_eq!(Renew::expect(joined()), Err(FabricError::UnexpectedReply { request: "Renew" }));
        assert_eq!(Leave::expect(joined()), Err(FabricError::UnexpectedReply { request: "Leave" }));
    }

    #[test]
    fn a_call_carries_its_fields_into_its_request() {
        let client = ComputeId(7);
        assert_eq!(SpansOf { client, from: 64 }.request(), Request::SpansOf { client, from: 64 });
        assert_eq!(ListTrees.request(), Request::ListTrees);
    }
}
