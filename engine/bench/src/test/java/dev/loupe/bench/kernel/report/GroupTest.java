package dev.loupe.bench.kernel.report;

import static dev.loupe.bench.kernel.report.KernelReports.simple;
import static dev.loupe.bench.kernel.report.KernelReports.without;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.bench.kernel.Device;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.bench.kernel.Problem;
import java.util.List;
import org.junit.jupiter.api.Test;

class GroupTest {
  private static Group group(Measurement... all) {
    return Group.of(List.of(all)).getFirst();
  }

  private static String verdict(Measurement... all) {
    return group(all).verdict("this machine");
  }

  @Test
  void theFirstThatIsRightIsWhatOthersAreHeldAgainst() {
    // medians 40 and 10 us; 4,000 operations in 10 us are 0.4 of 4 GFLOP/s
    assertEquals(
        "b wins: 4.0 times as fast as a; 10% of what this machine can do.",
        verdict(without("w", Status.WRONG, "no"), simple("a", 40, 0), simple("b", 10, 0)));
    assertEquals(
        "b wins: 12 times as fast as a; 10% of what this machine can do.",
        verdict(simple("a", 120, 0), simple("b", 10, 0), simple("c", 20, 0)));
  }

  @Test
  void thePlainestMayWin() {
    assertEquals(
        "a wins: no other is faster; 10% of what this machine can do.",
        verdict(simple("a", 10, 0), simple("b", 20, 0)));
  }

  @Test
  void noWinnerWhereTheSpreadDoesNotTell() {
    // a 10 to 15, p10 10.5, p90 14.5; b 13 to 18, p10 13.5: a median of 12.5 beside 15.5
    assertEquals(
        "a is ahead, but too little to tell from b; 8.0% of what this machine can do.",
        verdict(simple("a", 10, 1), simple("b", 13, 1), simple("c", 50, 1)));
    // b 11 to 11.5 is 62.5 / 11.25 = 5.6 times c
    assertEquals(
        "b is ahead: 5.6 times as fast as c, but too little to tell from a, d; 8.9% of what this"
            + " machine can do.",
        verdict(
            simple("c", 60, 1), simple("a", 11, 0.2), simple("b", 11, 0.1), simple("d", 10.9, 1)));
  }

  @Test
  void fewSamplesShowNoSpread() {
    Measurement slow = simple("a", 40.0, 40.0, 40.0, 40.0);
    assertEquals(
        "b is ahead: 4.0 times as fast as a, but too little to tell from a; 10% of what this"
            + " machine can do.",
        verdict(slow, simple("b", 10, 0)));
  }

  @Test
  void oneOrNone() {
    assertEquals(
        "Only a has times here; 10% of what this machine can do.",
        verdict(simple("a", 10, 0), without("b", Status.LEFT_OUT, "no room")));
    Group none = group(without("b", Status.WRONG, "no"));
    assertEquals("No variant has times here.", none.verdict("this machine"));
    assertEquals("", none.limit());
    assertEquals(List.of(), none.level());
  }

  @Test
  void saysWhatEndsTheSpeed() {
    Measurement memory = simple("a", 10, 0); // 4 operations a byte, the knee is at 8
    assertEquals(
        "4.00 operations for each byte: memory is the limit, not arithmetic.",
        group(memory).limit());
    Measurement arithmetic = with(memory, new Problem.Work(1000, 9000), memory.roofline());
    assertEquals(
        "9.00 operations for each byte: arithmetic is the limit, not memory.",
        group(arithmetic).limit());
    Device.Roofline none = new Device.Roofline(Double.NaN, Double.NaN);
    Measurement unknown = with(memory, memory.work(), none);
    assertEquals("", group(unknown).limit());
    assertEquals("Only a has times here.", verdict(unknown));
  }

  private static Measurement with(Measurement m, Problem.Work work, Device.Roofline roofline) {
    return new Measurement(
        m.shape(),
        m.variant(),
        m.idea(),
        m.precision(),
        m.status(),
        m.why(),
        m.error(),
        m.microseconds(),
        work,
        roofline,
        m.resources());
  }

  @Test
  void shapesAndPrecisionsStandApart() {
    List<Group> groups = Group.of(KernelReports.cuda(false).measurements());
    assertEquals(
        List.of(
            "T=1024 H=12 D=64 in f32",
            "T=4096 H=12 D=64 in f32",
            "T=1024 H=12 D=64 in bf16",
            "T=4096 H=12 D=64 in bf16"),
        groups.stream().map(Group::name).toList());
    assertEquals(List.of(6, 6, 5, 5), groups.stream().map(g -> g.all().size()).toList());
  }
}
