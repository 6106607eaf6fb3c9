// Placement over whole loads: known rates, and rates that are measured over the passes which placement itself gives rise to.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "shm_arena/placement.h"
#include "shm_arena/prefix_board.h"
#include "shm_arena/rate_meter.h"

namespace sysone {
namespace {

GroupLoad Ready(int64_t outstanding_tokens, const GroupRate& rate) {
  GroupLoad load;
  load.state = GroupState::kReady;
  load.max_model_len = 8192;
  load.rate = rate;
  load.outstanding_tokens = outstanding_tokens;
  return load;
}

// ---- known rates ----

// Groups that work off their queue at their rate while jobs arrive; the same arithmetic as the board's.
struct Simulation {
  explicit Simulation(std::vector<double> group_rates)
      : rates(std::move(group_rates)),
        queued(rates.size()),
        jobs(rates.size()),
        tokens(rates.size()) {}
  void Arrive(int64_t job_tokens) {
    BoardSnapshot board;
    for (size_t g = 0; g < rates.size(); ++g) {
      board.groups[board.group_count++] =
          Ready(std::llround(queued[g]), {static_cast<float>(rates[g]), 100});
    }
    const JobDemand job = {job_tokens, 100};
    const uint32_t group = Index(*PlaceJob(board, job, rotation++));
    queued[group] += static_cast<double>(job_tokens);
    ++jobs[group];
    tokens[group] += static_cast<double>(job_tokens);
    worst_wait = std::max(worst_wait, queued[group] / rates[group]);
  }
  void Pass(double seconds) {
    for (size_t g = 0; g < rates.size(); ++g)
      queued[g] = std::max(0.0, queued[g] - seconds * rates[g]);
  }
  std::vector<double> rates, queued;
  std::vector<int> jobs;
  std::vector<double> tokens;
  uint32_t rotation = 0;
  double worst_wait = 0;
};

TEST(PlacementSimulationTest, TwoEqualGroupsShareTheJobsEvenlyWhenIdleAndWhenLoaded) {
  for (const double load : {0.1, 0.9}) {
    Simulation simulation({1000, 1000});
    for (int n = 0; n < 2000; ++n) {
      simulation.Arrive(100);
      simulation.Pass(100 / (2000 * load));
    }
    EXPECT_NEAR(simulation.jobs[0], 1000, 100) << load;  // 50 % ± 5 % of all
  }
}

TEST(PlacementSimulationTest, SkewedJobSizesAreBalancedByTokens) {
  Simulation simulation({1000, 1000, 1000});
  std::mt19937 random(3);
  double total = 0;
  for (int n = 0; n < 3000; ++n) {
    const int64_t tokens = random() % 10 == 0 ? 3000 : 50;  // one in ten is sixty times longer
    simulation.Arrive(tokens);
    total += static_cast<double>(tokens);
    simulation.Pass(static_cast<double>(tokens) / 3300);  // 110 % load: queues grow
  }
  // Queues differ by at most one long job and the near-equal band.
  const auto [least, most] =
      std::minmax_element(simulation.queued.begin(), simulation.queued.end());
  EXPECT_LE(*most - *least, 3000 + 0.05 * *most + 64);
  for (const double tokens : simulation.tokens) EXPECT_NEAR(tokens, total / 3, total / 3 * 0.05);
}

TEST(PlacementSimulationTest, UnequalGroupsGetWorkInProportionToTheirRate) {
  Simulation simulation({4000, 1000});
  for (int n = 0; n < 5000; ++n) {
    simulation.Arrive(100);
    simulation.Pass(100.0 / 5000);  // full load
  }
  EXPECT_NEAR(simulation.tokens[0] / simulation.tokens[1], 4.0, 0.4);
}

TEST(PlacementSimulationTest, ABurstSpreadsSoThatNoGroupWaitsMuchLongerThanTheMean) {
  Simulation simulation({1000, 1000, 1000, 1000});
  for (int n = 0; n < 400; ++n) simulation.Arrive(100);
  // 40000 tokens over 4000/s are 10 s; the band of near-equals adds its 5 %, and one job.
  EXPECT_LE(simulation.worst_wait, 10 * 1.05 + 0.1 + 0.064);
}

// ---- what groups hold ----

// 64 states of 640 tokens, asked about again and again in random order; groups that keep what they computed.
TEST(PlacementSimulationTest,
     AStateIsComputedOnceHoweverManyGroupsThereAreUnlessTheQueueOfItsGroupIsLonger) {
  constexpr int32_t kStates = 64, kTokens = 640;
  constexpr uint32_t kGroups = 4;
  const auto region = std::make_unique<PrefixRegion>();
  PrefixBoard board(region.get());
  std::vector<JobMarks> states;
  for (int32_t s = 0; s < kStates; ++s) {
    states.emplace_back(0, std::span<const int32_t>());
    states.back().Add(std::vector<int32_t>(kTokens, s));
  }
  std::vector<double> queued(kGroups), computed(kGroups);
  std::mt19937 random(5);
  for (uint32_t n = 0; n < 5000; ++n) {
    BoardSnapshot snapshot;
    JobDemand job = {kTokens, kTokens};
    const JobMarks& state = states[random() % kStates];
    for (uint32_t g = 0; g < kGroups; ++g) {
      snapshot.groups[snapshot.group_count++] = Ready(std::llround(queued[g]), {1000, 100});
      job.held[g] = board.Held(GroupId{g}, state);
    }
    const GroupId group = *PlaceJob(snapshot, job, n);
    const auto work = static_cast<double>(job.Work(group));
    board.Sent(group, state);
    queued[Index(group)] += work;
    computed[Index(group)] += work;
    for (double& queue : queued)
      queue = std::max(0.0, queue - 160);  // all groups together do a state a request
  }
  double sum = 0;
  for (const double each : computed) {
    sum += each;
    EXPECT_GT(each, kTokens * kStates / kGroups / 2) << "one group has nearly nothing to do";
  }
  // Each state once; twice where its group had a queue when it came again; and a token for each request.
  EXPECT_LT(sum, 2 * kStates * kTokens + 5000);
}

// ---- measured rates ----

// What a pass of a group costs, and for how long something makes it three times as much.
struct GroupCost {
  double us_a_pass = 0;
  double us_a_token = 0;
  int64_t slowed_until_us = 0;

  int64_t PassUs(int64_t tokens, int64_t now_us) const {
    const double us = us_a_pass + us_a_token * static_cast<double>(tokens);
    return std::llround(now_us < slowed_until_us ? 3 * us : us);
  }
};

// Clients that ask again after they got their answer, and groups that compute what is there, all at once: what the real
// processes do, in virtual time. One job in ten is long.
class Cluster {
 public:
  Cluster(std::vector<GroupCost> costs, size_t clients, double think_us)
      : think_us_(think_us), groups_(costs.size()), next_request_us_(clients) {
    for (size_t g = 0; g < costs.size(); ++g) groups_[g].cost = costs[g];
    for (int64_t& at : next_request_us_) at = static_cast<int64_t>(random_() % 30'000);
  }

  void RunUntil(int64_t until_us) {
    for (;;) {
      const auto client = std::min_element(next_request_us_.begin(), next_request_us_.end());
      const auto group = std::min_element(
          groups_.begin(), groups_.end(),
          [](const Group& a, const Group& b) { return a.pass_end_us < b.pass_end_us; });
      const int64_t next_us = std::min(*client, group->pass_end_us);
      if (next_us > until_us) return;
      now_us_ = next_us;
      if (group->pass_end_us == now_us_)
        EndPass(*group);
      else
        Request(static_cast<size_t>(client - next_request_us_.begin()));
      for (Group& idle : groups_)
        if (idle.pass_end_us == kNever && !idle.waiting.empty()) BeginPass(idle);
    }
  }

  // The group's share of the jobs that were answered from now until then.
  double ShareUntil(int64_t until_us, size_t group) {
    for (Group& each : groups_) each.answered = 0;
    RunUntil(until_us);
    double all = 0;
    for (const Group& each : groups_) all += each.answered;
    EXPECT_GT(all, 50) << "too few to speak of shares";
    return groups_[group].answered / all;
  }

  double Rate(size_t group) const { return groups_[group].meter.Rate(now_us_).tokens_per_second; }

 private:
  static constexpr int64_t kNever = INT64_MAX;
  static constexpr int64_t kMaxPassTokens = 2048;

  struct Job {
    size_t client;
    int64_t tokens;
  };
  struct Group {
    GroupCost cost;
    RateMeter meter;
    std::deque<Job> waiting;
    std::vector<Job> running;
    int64_t outstanding_tokens = 0;
    int64_t pass_begin_us = 0;
    int64_t pass_end_us = kNever;
    int answered = 0;
  };

  void Request(size_t client) {
    BoardSnapshot board;
    for (const Group& group : groups_)
      board.groups[board.group_count++] =
          Ready(group.outstanding_tokens, group.meter.Rate(now_us_));
    const Job job = {client, random_() % 10 == 0 ? 500 : 60};
    Group& group = groups_[Index(*PlaceJob(board, {job.tokens, 500}, rotation_++))];
    group.waiting.push_back(job);
    group.outstanding_tokens += job.tokens;
    next_request_us_[client] = kNever;
  }

  void BeginPass(Group& group) {
    int64_t tokens = 0;
    while (!group.waiting.empty() && tokens < kMaxPassTokens) {
      tokens += group.waiting.front().tokens;
      group.running.push_back(group.waiting.front());
      group.waiting.pop_front();
    }
    group.pass_begin_us = now_us_;
    group.pass_end_us = now_us_ + group.cost.PassUs(tokens, now_us_);
  }

  void EndPass(Group& group) {
    int64_t tokens = 0;
    for (const Job& job : group.running) {
      tokens += job.tokens;
      next_request_us_[job.client] = now_us_ + 50 + ThinkUs();
    }
    group.answered += static_cast<int>(group.running.size());
    group.outstanding_tokens -= tokens;
    group.running.clear();
    group.meter.Record(static_cast<uint64_t>(tokens),
                       static_cast<uint64_t>(now_us_ - group.pass_begin_us), now_us_);
    group.pass_end_us = kNever;
  }

  int64_t ThinkUs() {
    if (think_us_ == 0) return 0;
    return std::llround(std::exponential_distribution(1 / think_us_)(random_));
  }

  const double think_us_;
  std::vector<Group> groups_;
  std::vector<int64_t> next_request_us_;  // by client; kNever while it waits for an answer
  std::mt19937 random_{7};
  uint32_t rotation_ = 0;
  int64_t now_us_ = 0;
};

constexpr int64_t kSecond = 1'000'000;

// A pass of 100 tokens takes 30 ms; of these, as much as `overhead_tokens` more would take is the same for every pass.
GroupCost Costs(double overhead_tokens, double times_slower = 1, int64_t slowed_until_us = 0) {
  const double us_a_token = 30'000 / (100 + overhead_tokens) * times_slower;
  return {us_a_token * overhead_tokens, us_a_token, slowed_until_us};
}

// From passes whose time is all in their tokens to such whose time is all in the weights.
constexpr double kOverheadTokens[] = {0, 60, 600, 6000};

struct Load {
  size_t clients;
  double think_us;
};
constexpr Load kLoads[] = {{6, 0}, {6, 200'000}, {16, 0}, {16, 200'000}, {64, 0}, {64, 200'000}};

TEST(MeasuredRatesTest, OneColdPassOfAGroupNeverTiltsTheLoad) {
  for (const double overhead : kOverheadTokens)
    for (const Load& load : kLoads) {
      SCOPED_TRACE(testing::Message() << overhead << " tokens of overhead, " << load.clients
                                      << " clients, " << load.think_us << " us");
      // The pass that begins first.
      Cluster cluster({Costs(overhead), Costs(overhead, 1, 31'000)}, load.clients, load.think_us);
      EXPECT_NEAR(cluster.ShareUntil(20 * kSecond, 1), 0.5, 0.05);
      EXPECT_NEAR(cluster.ShareUntil(60 * kSecond, 1), 0.5, 0.05);
    }
}

TEST(MeasuredRatesTest, EqualGroupsShareEvenlyAgainSoonAfterOneWasSlowedDown) {
  for (const double overhead : kOverheadTokens)
    for (const Load& load : kLoads) {
      SCOPED_TRACE(testing::Message() << overhead << " tokens of overhead, " << load.clients
                                      << " clients, " << load.think_us << " us");
      Cluster cluster({Costs(overhead), Costs(overhead, 1, 4 * kSecond)}, load.clients,
                      load.think_us);
      cluster.RunUntil(4 * kSecond);
      EXPECT_LT(cluster.Rate(1), 0.75 * cluster.Rate(0)) << "nothing that could tilt the load";
      cluster.RunUntil(30 * kSecond);
      EXPECT_NEAR(cluster.ShareUntil(90 * kSecond, 1), 0.5, 0.025);
    }
}

TEST(MeasuredRatesTest, AGroupThatWasSlowWhenItWasLastNeededIsTriedAgain) {
  // One client: always one group idle, and the one that seems faster could do it all.
  Cluster cluster({Costs(0), Costs(0, 1, 6 * kSecond)}, 1, 0);
  cluster.RunUntil(10 * kSecond);
  EXPECT_LT(cluster.Rate(1), 0.75 * cluster.Rate(0));
  EXPECT_EQ(cluster.ShareUntil(20 * kSecond, 1), 0);
  cluster.RunUntil(80 * kSecond);
  EXPECT_NEAR(cluster.ShareUntil(120 * kSecond, 1), 0.5, 0.025);
}

TEST(MeasuredRatesTest, ASlowerGroupGetsLessAndOneThatIsNeededIsNotStarved) {
  for (const double overhead : kOverheadTokens)
    for (const Load& load : kLoads) {
      SCOPED_TRACE(testing::Message() << overhead << " tokens of overhead, " << load.clients
                                      << " clients, " << load.think_us << " us");
      Cluster cluster({Costs(overhead), Costs(overhead, 3)}, load.clients, load.think_us);
      cluster.RunUntil(20 * kSecond);
      const double share = cluster.ShareUntil(120 * kSecond, 1);
      // A quarter is in proportion. Known exactly, it would be that; smaller passes hide how slow it is (see PlaceJob) or
      // add to it, so that the ratio to the other's third lies between its square and its two thirds' power, a share of 0.1
      // and 0.33; turns among near-equals add some.
      EXPECT_GT(share, 0.07);
      EXPECT_LT(share, 0.43);
    }
}

}  // namespace
}  // namespace sysone
