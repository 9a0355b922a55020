//! Group membership, as it meets the rest of IP: who joins, queries that come, and reports that
//! leave (RFC 3376, RFC 3810). The state is kept by [`groups`](super::groups).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Ip;
use crate::error::Error;
use crate::ip::autoconfigure::Autoconfigure;
use crate::ip::outgoing::Outgoing;
use crate::ip::shards::Content;
use crate::time::Instant;
use crate::wire::ip::Packet;
use crate::wire::mld::{Change, MAX_RECORDS};
use crate::wire::{Malformed, igmp, mld, ndp};

impl Ip {
    /// A socket begins to listen to a group.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if the host listens to as many as may be.
    pub(crate) fn join_group(&mut self, group: IpAddr) -> Result<(), Error> {
        self.groups.join(group)
    }

    /// A socket ceases to listen to a group.
    pub(crate) fn leave_group(&mut self, group: IpAddr) {
        self.groups.leave(group);
    }

    /// True if every host hears the group, or every one with such an address as ours.
    pub(crate) fn is_group_of_all(&self, group: IpAddr) -> bool {
        self.routes.is_our_group(group)
    }

    /// A replica says whether it listens to a group.
    pub(crate) fn on_group_told(&mut self, from: u16, group: IpAddr, listens: bool) {
        if from < 64 {
            self.groups.on_told(from, group, listens);
        }
    }

    pub(super) fn on_igmp(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), Malformed> {
        let message = igmp::Message::parse(packet.payload)?;
        let igmp::Message::Query { version, group, max_response_ms } = message else {
            return Ok(());
        };
        // All of IGMP is sent with TTL 1 (RFC 3376 §4): nobody asks from afar.
        if packet.hop_limit == 1 {
            self.groups.on_igmp_query(now, (version, group), max_response_ms);
        }
        Ok(())
    }

    /// Sends the reports that are due.
    pub(super) fn report_groups(&mut self, now: Instant) {
        let due = self.groups.due(now);
        if self.shards.is_replica() {
            for (change, group) in due {
                let listens = change != Change::Left;
                self.shards.send(0, Content::Listens { group, listens });
            }
            return;
        }
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (change, group) in due {
            match group {
                IpAddr::V4(group) => v4.push((change, group)),
                IpAddr::V6(group) => v6.push((change, group)),
            }
        }
        self.report_ipv4(now, &v4);
        self.report_ipv6(now, &v6);
    }

    fn report_ipv4(&mut self, now: Instant, records: &[(Change, Ipv4Addr)]) {
        let source = match self.routes.source_for(igmp::ALL_V3_ROUTERS.into()) {
            Some(IpAddr::V4(source)) => source,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let version = self.groups.igmp_version(now);
        if version == igmp::Version::V3 {
            for records in records.chunks(MAX_RECORDS) {
                self.send_report(igmp::ALL_V3_ROUTERS.into(), |out| {
                    igmp::emit_report(source, records, out);
                });
            }
            return;
        }
        for record in records {
            let mut packet = Vec::new();
            let to = igmp::emit_old_report(source, *record, version, &mut packet);
            if let Some(to) = to {
                self.send_report(to.into(), |out| out.extend_from_slice(&packet));
            }
        }
    }

    fn report_ipv6(&mut self, now: Instant, records: &[(Change, Ipv6Addr)]) {
        let own = self.autoconfigure.as_ref();
        let source = own.and_then(Autoconfigure::link_local).unwrap_or(Ipv6Addr::UNSPECIFIED);
        if self.groups.mld_version(now) == mld::Version::V2 {
            for records in records.chunks(MAX_RECORDS) {
                self.send_report(mld::ALL_MLDV2_ROUTERS.into(), |out| {
                    mld::emit_report(source, records, out);
                });
            }
            return;
        }
        for (change, group) in records {
            let to = if *change == Change::Left { ndp::ALL_ROUTERS } else { *group };
            self.send_report(to.into(), |out| mld::emit_report_v1(source, *change, *group, out));
        }
    }

    /// Sends the packet that `write` appends to the group that it is for.
    fn send_report(&mut self, to: IpAddr, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = Vec::new();
        self.write_group_link(to, &mut frame);
        write(&mut frame);
        self.send(Outgoing::frame(frame));
    }
}
