package probe

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
)

// answering runs a schedule until the time given, with peers that answer in no time, and returns how often each
// was asked.
func answering(s *Schedule[int], from, to time.Duration, answers func(key int) bool) map[int]int {
	asked := map[int]int{}
	for now := max(from, s.Next()); now < to; now = max(now, s.Next()) {
		for _, due := range s.Tick(now) {
			for _, send := range due.Sends {
				asked[due.Key]++
				if answers(due.Key) {
					s.Do(due.Key, func(p *Peer) { p.Reply(now, Message{Kind: Reply, Nonce: send.Message.Nonce}) })
				}
			}
		}
	}
	return asked
}

func everybody(int) bool { return true }

func schedule(o ScheduleOptions, peers int) *Schedule[int] {
	s := NewSchedule[int](o)
	for key := range peers {
		s.Put(key, New(0, Options{Mode: cluster.ModePermissive, Seed: uint64(key) << 32, Interval: Interval(peers)}))
	}
	return s
}

func sum(counts map[int]int) (total int) {
	for _, count := range counts {
		total += count
	}
	return total
}

func TestScheduleHoldsItsRate(t *testing.T) {
	s := schedule(ScheduleOptions{Requests: 50}, 1000)
	for second := range 30 {
		from := time.Duration(second) * time.Second
		asked := answering(s, from, from+time.Second, func(int) bool { return false })
		if total := sum(asked); total > 55 || second > 0 && total < 49 {
			t.Errorf("second %d: %d requests, want 50 and at most 5 more", second, total)
		}
	}
}

// Where there is too much to ask, everybody waits for one round of all at most: a thousand peers that do not answer
// keep none that does from its turn.
func TestScheduleIsFair(t *testing.T) {
	const peers, round = 1010, 10100 * time.Millisecond
	s := schedule(ScheduleOptions{Requests: 100}, peers)
	asked := answering(s, 0, 5*time.Minute, func(key int) bool { return key < 10 })
	longest := Interval(peers)*11/10 + round
	for key := range peers {
		if want := int(5 * time.Minute / longest); asked[key] < want {
			t.Errorf("peer %d was asked %d times in 5 minutes, want %d at least: each %v", key, asked[key], want, longest)
		}
	}
}

func TestInterval(t *testing.T) {
	got := map[int]time.Duration{}
	for _, peers := range []int{0, 1, 1000, 1001, 5000} {
		got[peers] = Interval(peers)
	}
	want := map[int]time.Duration{0: 10 * time.Second, 1: 10 * time.Second, 1000: 10 * time.Second, 1001: 10010 * time.Millisecond, 5000: 50 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("intervals by peers (-want +got):\n%s", diff)
	}
}

func TestFiveThousandPeersAreConfirmedWithinHalfAMinute(t *testing.T) {
	s := schedule(ScheduleOptions{}, 5000)
	if asked := answering(s, 0, 30*time.Second, everybody); len(asked) != 5000 {
		t.Errorf("%d peers were asked in 30 s", len(asked))
	}
	if total := sum(answering(s, 5*time.Minute, 15*time.Minute, everybody)); total < 600*95 || total > 600*105 {
		t.Errorf("%d requests in ten minutes, want about 100 per second", total)
	}
}

func TestScheduleAnswers(t *testing.T) {
	s := schedule(ScheduleOptions{Answers: 100}, 10)
	flood := func(key int) (answered int) {
		for now := time.Duration(0); now < 10*time.Second; now += time.Millisecond {
			if _, ok := s.Request(now, key, Message{Kind: Request}, 0); ok {
				answered++
			}
		}
		return answered
	}
	if got := flood(0); got < 238 || got > 240 {
		t.Errorf("a flooding peer was answered %d times in 10 s, want 40 and 20 per second", got)
	}
	if answer, ok := s.Request(10*time.Second, 1, Message{Kind: Request, Nonce: 7}, 1396); !ok || answer.Nonce != 7 || answer.FirstFragment != 1396 {
		t.Errorf("another peer then: %+v, %t", answer, ok)
	}
	all := 0
	for key := range 10 {
		for range 1000 {
			if _, ok := s.Request(20*time.Second, key, Message{Kind: Request}, 0); ok {
				all++
			}
		}
	}
	if all != 100 {
		t.Errorf("all peers at once were answered %d times, want 100", all)
	}
	if _, ok := s.Request(0, 99, Message{Kind: Request}, 0); ok {
		t.Error("a request of nobody was answered")
	}
}

func TestScheduleRequestBringsForward(t *testing.T) {
	s := schedule(ScheduleOptions{}, 1)
	s.Tick(0)
	for s.Next() < 10*time.Second {
		s.Tick(s.Next())
	}
	now := s.Next() - 2*time.Second
	s.Request(now, 0, Message{Kind: Request}, 0)
	if s.Next() > now {
		t.Errorf("an unconfirmed peer asked at %v, and is asked at %v", now, s.Next())
	}
}

// The queue against a list that is searched from end to end.
func TestPropertyScheduleIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSchedule[int](ScheduleOptions{Requests: 1_000_000})
		peers := map[int]*Peer{}
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.IntRange(0, 5).Draw(t, "key")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				peers[key] = New(now, Options{Seed: rapid.Uint64().Draw(t, "seed")})
				s.Put(key, peers[key])
			case 1:
				delete(peers, key)
				s.Remove(key)
			case 2:
				if s.Do(key, func(p *Peer) { p.SetMode(now, cluster.ModePermissive) }) != (peers[key] != nil) {
					t.Fatalf("peer %d is there, or not", key)
				}
			case 3:
				now += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
				var want, got []int
				for key, peer := range peers {
					if peer.Next() <= now {
						want = append(want, key)
					}
				}
				for _, due := range s.Tick(now) {
					got = append(got, due.Key)
				}
				slices.Sort(want)
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("due at %v (-want +got):\n%s", now, diff)
				}
			}
			next := never
			for _, peer := range peers {
				next = min(next, peer.Next())
			}
			if s.Next() != next || s.Len() != len(peers) {
				t.Fatalf("next of %d peers at %v, want %v of %d", s.Len(), s.Next(), next, len(peers))
			}
		}
	})
}

// BenchmarkProbe is one request and its reply, and one request of the peer, with bytes both ways, among 5,000
// peers: at 5,000 peers there are 100 of them per second. "core-%" is their share of one processor.
func BenchmarkProbe(b *testing.B) {
	const peers = 5000
	s := schedule(ScheduleOptions{Requests: 1_000_000}, peers)
	addrs := make([]cluster.PublicKey, peers)
	for i := range addrs {
		addrs[i] = cluster.PublicKey{byte(i), byte(i >> 8)}
	}
	own := Address(cluster.PublicKey{31: 1})
	answering(s, 0, 5*time.Minute, everybody)
	now := 5 * time.Minute
	b.ReportAllocs()
	for done := 0; b.Loop(); {
		for done == 0 {
			now = max(now, s.Next())
			for _, due := range s.Tick(now) {
				for _, send := range due.Sends {
					exchange(b, s, now, due.Key, own, addrs[due.Key], send)
					done++
				}
			}
		}
		done--
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)*100/1e9*100, "core-%")
}

func exchange(b *testing.B, s *Schedule[int], now time.Duration, key int, own netip.Addr, public cluster.PublicKey, send Send) {
	peer := Address(public)
	if _, err := Packet(own, peer, 51880, send.Message, send.Size); err != nil {
		b.Fatal(err)
	}
	reply, request := send.Message, send.Message
	reply.Kind = Reply
	for _, m := range []Message{reply, request} {
		packet, err := Packet(peer, own, 51880, m, MinSize)
		if err != nil {
			b.Fatal(err)
		}
		_, _, m, err = Parse(packet, MinSize)
		switch {
		case err != nil:
			b.Fatal(err)
		case m.Kind == Reply:
			s.Do(key, func(p *Peer) { p.Reply(now, m) })
		default:
			if _, err := Packet(own, peer, 51880, request, MinSize); err != nil {
				b.Fatal(err)
			}
			s.Request(now, key, m, 0)
		}
	}
}
