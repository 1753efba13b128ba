package dev.loupe.cuda.ptx;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.ptx.text.PtxException;
import java.lang.foreign.MemorySegment;
import java.math.BigDecimal;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Small PTX written by hand, against what the ISA says of each instruction. */
class MachineTest {
  /**
   * Each thread has two numbers of 64 bits in %rd1 and %rd2 (%r1 and %r2 have their low halves, %f1
   * and %f2 too, %d1 and %d2 all of them) and gives %rd9.
   */
  private static final String PTX =
      """
      .version 7.0
      .target sm_80
      .address_size 64
      .extern .shared .align 16 .b8 smem[];
      .visible .entry k(.param .u64 in, .param .u64 out) .maxntid 96, 1, 1
      {
        .reg .pred %%p<10>;
        .reg .b16 %%rs<10>;
        .reg .b32 %%r<20>;
        .reg .f32 %%f<10>;
        .reg .f64 %%d<10>;
        .reg .b64 %%rd<20>;
        mov.u32 %%r0, %%tid.x;
        ld.param.u64 %%rd10, [in];
        ld.param.u64 %%rd11, [out];
        mad.wide.u32 %%rd10, %%r0, 16, %%rd10;
        mad.wide.u32 %%rd11, %%r0, 8, %%rd11;
        ld.global.v2.u64 {%%rd1, %%rd2}, [%%rd10];
        cvt.u32.u64 %%r1, %%rd1;
        cvt.u32.u64 %%r2, %%rd2;
        mov.b32 %%f1, %%r1;
        mov.b32 %%f2, %%r2;
        mov.b64 %%d1, %%rd1;
        mov.b64 %%d2, %%rd2;
        mov.u64 %%rd9, 0;
        %s
        st.global.u64 [%%rd11], %%rd9;
        ret;
      }
      """;

  private static long[] run(String body, int threads, long... in) {
    long[] out = new long[threads];
    GlobalMemory memory = new GlobalMemory();
    new Machine(memory, 100_000)
        .run(
            Module.parse(PTX.formatted(body)).entry("k"),
            new Machine.Launch(1, threads, 64),
            memory.add(MemorySegment.ofArray(in)),
            memory.add(MemorySegment.ofArray(out)));
    return out;
  }

  private static long run(String body, long a, long b) {
    return run(body, 1, a, b)[0];
  }

  private static void assertFails(String message, String body, int threads) {
    PtxException e =
        assertThrows(PtxException.class, () -> run(body, threads, new long[2 * threads]));
    assertTrue(e.toString().contains(message), e.toString());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          add.s32 %r9, %r1, %r2         | ffffffff |        2 |        1
          sub.s32 %r9, %r1, %r2         |        1 |        2 | ffffffff
          mul.lo.s32 %r9, %r1, %r2      | 80000001 |        3 | 80000003
          mul.hi.s32 %r9, %r1, %r2      | ffffffff |        5 | ffffffff
          mul.hi.u32 %r9, %r1, %r2      | ffffffff |        5 |        4
          mad.lo.s32 %r9, %r1, %r2, -1  |        7 |        9 |       3e
          mul.wide.s32 %rd9, %r1, %r2   | ffffffff |        5 | fffffffffffffffb
          mul.wide.u32 %rd9, %r1, %r2   | ffffffff |        5 | 4fffffffb
          mul.lo.s64 %rd9, %rd1, %rd2   | 100000001 | 100000003 | 400000003
          mul.hi.u64 %rd9, %rd1, %rd2   | ffffffffffffffff | 4 | 3
          div.s32 %r9, %r1, %r2         | fffffff9 |        2 | fffffffd
          div.u32 %r9, %r1, %r2         | fffffff9 |        2 | 7ffffffc
          rem.s32 %r9, %r1, %r2         | fffffff9 |        2 | ffffffff
          shl.b32 %r9, %r1, %r2         |        1 |       1f | 80000000
          shl.b32 %r9, %r1, %r2         |        1 |       20 |        0
          shr.u32 %r9, %r1, %r2         | 80000000 |       20 |        0
          shr.s32 %r9, %r1, %r2         | 80000000 |       3f | ffffffff
          shr.s32 %r9, %r1, %r2         | 80000000 |        4 | f8000000
          min.s32 %r9, %r1, %r2         | ffffffff |        1 | ffffffff
          min.u32 %r9, %r1, %r2         | ffffffff |        1 |        1
          max.s32 %r9, %r1, %r2         | ffffffff |        1 |        1
          abs.s32 %r9, %r1              | fffffff9 |        0 |        7
          neg.s32 %r9, %r1              |        7 |        0 | fffffff9
          not.b32 %r9, %r1              | 0f0f0f0f |        0 | f0f0f0f0
          xor.b32 %r9, %r1, %r2         | 0f0f0f0f | 00ffff00 |  ff0f00f
          popc.b32 %r9, %r1             | f000000f |        0 |        8
          clz.b32 %r9, %r1              | 00010000 |        0 |        f
          brev.b32 %r9, %r1             | 00000013 |        0 | c8000000
          bfind.u32 %r9, %r1            | 00010000 |        0 |       10
          bfind.shiftamt.u32 %r9, %r1   | 00010000 |        0 |        f
          bfind.u32 %r9, %r1            |        0 |        0 | ffffffff
          bfi.b32 %r9, %r1, %r2, 8, 4   | ffffffff |        0 |      f00
          bfi.b32 %r9, %r1, %r2, 28, 8  |       1f |        7 | f0000007
          bfi.b64 %rd9, %rd1, %rd2, 32, 32 |     5 |        6 | 500000006
          selp.b32 %r9, %r1, %r2, 1     |        3 |        4 |        3
          cvt.s64.s32 %rd9, %r1         | 80000000 |        0 | ffffffff80000000
          cvt.u64.u32 %rd9, %r1         | 80000000 |        0 | 80000000
          cvt.s32.s8 %r9, %r1           |     1280 |        0 | ffffff80
          """)
  void integers(String instruction, String a, String b, String expected) {
    String widen = instruction.contains("%rd9") ? "" : "cvt.u64.u32 %rd9, %r9;";
    long result =
        run(
            instruction + "; " + widen,
            Long.parseUnsignedLong(a, 16),
            Long.parseUnsignedLong(b, 16));
    assertEquals(expected.strip(), Long.toHexString(result));
  }

  @ParameterizedTest
  @CsvSource({
    "cvt.rzi.s32.f32 %r9 %f1, 7fc00000, 0", // NaN
    "cvt.rzi.s32.f32 %r9 %f1, 4f32d05e, 7fffffff", // 3e9
    "cvt.rzi.s32.f32 %r9 %f1, bff33333, ffffffff", // -1.9
    "cvt.rzi.u32.f32 %r9 %f1, c0000000, 0", // -2
    "cvt.rni.s32.f32 %r9 %f1, 40200000, 2", // 2.5
    "cvt.rn.f32.s32 %f9 %r1, 1000001, 4b800000", // 2^24 + 1, a tie
    "cvt.rn.f32.u32 %f9 %r1, ffffffff, 4f800000",
    "cvt.rzi.u64.f32 %rd9 %f1, 5f800000, ffffffffffffffff", // 2^64
    "cvt.rzi.u64.f32 %rd9 %f1, 5f000000, 8000000000000000", // 2^63
    "cvt.rzi.u64.f32 %rd9 %f1, 7fc00000, 8000000000000000",
    "cvt.rzi.u64.f64 %rd9 %d1, 4330000000000001, 10000000000001",
    "cvt.rn.f64.u64 %d9 %rd1, ffffffffffffffff, 43f0000000000000",
    "cvt.rn.f32.f64 %f9 %d1, 3ff0000010000000, 3f800000", // half a step, a tie
    "cvt.sat.f32.f32 %f9 %f1, c0000000, 0",
    "cvt.sat.f32.f32 %f9 %f1, 7fc00000, 0",
    "cvt.sat.f32.f32 %f9 %f1, 40000000, 3f800000",
    "cvt.rn.f16.f32 %rs9 %f1, 33800000, 1", // 2^-24, the smallest
    "cvt.rn.f16.f32 %rs9 %f1, 33000000, 0", // half of it, a tie
    "cvt.rn.f16.f32 %rs9 %f1, 477ff000, 7c00", // 65520
    "cvt.rn.bf16.f32 %rs9 %f1, 3f808000, 3f80",
    "cvt.rn.bf16.f32 %rs9 %f1, 3f818000, 3f82",
    "cvt.rn.bf16.f32 %rs9 %f1, 7fffffff, 7fff", // NaN
    "cvt.rna.tf32.f32 %r9 %f1, 3f801000, 3f802000",
    "cvt.rna.tf32.f32 %r9 %f1, bf801000, bf802000",
    "cvt.rna.tf32.f32 %r9 %f1, 3f800fff, 3f800000",
    "ex2.approx.ftz.f32 %f9 %f1, 40400000, 41000000",
    "ex2.approx.ftz.f32 %f9 %f1, c2ff0000, 0", // 2^-127.5
    "ex2.approx.ftz.f32 %f9 %f1, ff800000, 0",
    "lg2.approx.f32 %f9 %f1, 41000000, 40400000",
    "rcp.approx.ftz.f32 %f9 %f1, 1, 7f800000", // of a subnormal
    "rcp.rn.f32 %f9 %f1, 40000000, 3f000000",
    "sqrt.rn.f32 %f9 %f1, 40000000, 3fb504f3",
    "abs.f32 %f9 %f1, 80000001, 1",
    "neg.f32 %f9 %f1, 0, 80000000",
  })
  void floats(String instruction, String a, String expected) {
    String text = instruction.replaceAll("9 ", "9, ") + "; ";
    String widen =
        text.contains("%rs9")
            ? "cvt.u64.u16 %rd9, %rs9;"
            : text.contains("%f9")
                ? "mov.b32 %r9, %f9; cvt.u64.u32 %rd9, %r9;"
                : text.contains("%d9")
                    ? "mov.b64 %rd9, %d9;"
                    : text.contains("%r9") ? "cvt.u64.u32 %rd9, %r9;" : "";
    long result = run(text + widen, Long.parseUnsignedLong(a, 16), 0);
    assertEquals(expected, Long.toHexString(result));
  }

  /** max, min and comparisons where an operand is NaN, and where zeros differ in sign. */
  @ParameterizedTest
  @CsvSource({
    "max.f32, 7fc00000, 3f800000, 3f800000",
    "max.f32, 3f800000, 7fc00000, 3f800000",
    "min.f32, 7fc00000, 7fc00000, 7fffffff",
    "max.f32, 80000000, 0, 0",
    "min.f32, 0, 80000000, 80000000",
    "copysign.f32, 80000000, 3f800000, bf800000", // the sign of the first
    "setp.lt.f32, 7fc00000, 0, 0",
    "setp.ltu.f32, 7fc00000, 0, 1",
    "setp.neu.f32, 7fc00000, 7fc00000, 1",
    "setp.ne.f32, 7fc00000, 0, 0",
    "setp.nan.f32, 0, 7fc00000, 1",
    "setp.num.f32, 0, 7fc00000, 0",
    "setp.eq.f32, 0, 80000000, 1",
  })
  void pairsOfFloats(String instruction, String a, String b, String expected) {
    String text =
        instruction.startsWith("setp")
            ? instruction + " %p9, %f1, %f2; selp.b32 %r9, 1, 0, %p9;"
            : instruction + " %f9, %f1, %f2; mov.b32 %r9, %f9;";
    long result =
        run(
            text + " cvt.u64.u32 %rd9, %r9;",
            Long.parseUnsignedLong(a, 16),
            Long.parseUnsignedLong(b, 16));
    assertEquals(expected, Long.toHexString(result));
  }

  @Test
  void halvesGoWhereTheyBelong() {
    String pack = "cvt.rn.f16x2.f32 %r9, %f1, %f2; cvt.u64.u32 %rd9, %r9;";
    long one = Float.floatToRawIntBits(1);
    long two = Float.floatToRawIntBits(2);
    assertEquals(0x3c00_4000L, run(pack, one, two)); // the first above
    String move = "mov.b32 {%rs1, %rs2}, %r1; mov.b32 %r9, {%rs2, %rs1}; cvt.u64.u32 %rd9, %r9;";
    assertEquals(0x2222_1111L, run(move, 0x1111_2222L, 0));
  }

  @Test
  void aSumRoundedDownIsTheLargestFloatBelow() {
    Random random = new Random(1);
    for (int i = 0; i < 20_000; i++) {
      float a = Math.scalb(random.nextFloat(-1, 1), random.nextInt(-20, 20));
      float b = Math.scalb(random.nextFloat(-1, 1), random.nextInt(-20, 20));
      float c = i % 3 == 0 ? -a * b : Math.scalb(random.nextFloat(-1, 1), random.nextInt(-50, 50));
      float down = Floats.fmaDown(a, b, c);
      BigDecimal exact = new BigDecimal(a).multiply(new BigDecimal(b)).add(new BigDecimal(c));
      assertTrue(new BigDecimal(down).compareTo(exact) <= 0);
      assertTrue(new BigDecimal(Math.nextUp(down)).compareTo(exact) > 0);
    }
  }

  @Test
  void anExactSumIsCutTowardsZero() {
    Random random = new Random(2);
    for (int i = 0; i < 20_000; i++) {
      ExactSum sum = new ExactSum(0);
      BigDecimal exact = BigDecimal.ZERO;
      for (int k = 0; k < 17; k++) {
        double addend = Math.scalb((double) random.nextInt(-5, 6), random.nextInt(-60, 60));
        sum.add(addend);
        exact = exact.add(new BigDecimal(addend));
      }
      float cut = sum.cut();
      float further = cut + Math.copySign(Math.ulp(cut), exact.signum());
      assertTrue(new BigDecimal(cut).abs().compareTo(exact.abs()) <= 0);
      assertTrue(new BigDecimal(further).abs().compareTo(exact.abs()) > 0);
      assertTrue(cut == 0 || Math.signum(cut) == exact.signum());
    }
  }

  /** Each lane goes round as often as its number says; then all are together again. */
  @Test
  void lanesThatPartedComeTogether() {
    String body =
        """
        mov.u32 %r3, 0;
        LOOP:
        setp.ge.u32 %p1, %r3, %r0;
        @%p1 bra DONE;
        add.s32 %r3, %r3, 1;
        bra.uni LOOP;
        DONE:
        activemask.b32 %r5;
        shfl.sync.idx.b32 %r4, %r3, 31, 31, -1;
        bar.sync 0;
        cvt.u64.u32 %rd9, %r5;
        shl.b64 %rd9, %rd9, 32;
        cvt.u64.u32 %rd8, %r4;
        or.b64 %rd9, %rd9, %rd8;
        """;
    long[] out = run(body, 64, new long[128]);
    for (int t = 0; t < 64; t++) {
      assertEquals(0xffff_ffff_0000_0000L + (t | 31), out[t]);
    }
  }

  /** Half of a warp alone, and a barrier that the ended threads no longer hold up. */
  @Test
  void threadsThatEndedAreNotWaitedFor() {
    String body =
        """
        mov.u64 %rd9, 5;
        st.global.u64 [%rd11], %rd9;
        setp.lt.u32 %p1, %r0, 40;
        @%p1 ret;
        bar.sync 0;
        shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;
        cvt.u64.u32 %rd9, %r3;
        """;
    long[] out = run(body, 64, new long[128]);
    for (int t = 0; t < 64; t++) {
      assertEquals(t < 40 ? 5 : t ^ 1, out[t]);
    }
  }

  @Test
  void barriersReduce() {
    String body =
        """
        setp.lt.u32 %p1, %r0, 50;
        bar.red.popc.u32 %r3, 0, %p1;
        barrier.cta.red.or.pred %p2, 0, %p1;
        bar.red.and.pred %p3, 0, !%p1;
        selp.b32 %r4, 1000, 0, %p2;
        selp.b32 %r5, 2000, 0, %p3;
        add.s32 %r3, %r3, %r4;
        add.s32 %r3, %r3, %r5;
        cvt.u64.u32 %rd9, %r3;
        """;
    long[] expected = new long[96];
    Arrays.fill(expected, 1050);
    assertEquals(Arrays.toString(expected), Arrays.toString(run(body, 96, new long[192])));
  }

  @Test
  void anAsynchronousCopyIsThereOnceItIsWaitedFor() {
    String copy = "cp.async.cg.shared.global [smem], [%rd10], 16, 8; cp.async.commit_group; ";
    String wait = "cp.async.wait_group 0; ";
    String load = "ld.shared.u64 %rd9, [smem];";
    assertEquals(7, run(copy + wait + load, 7, 9));
    String second = "ld.shared.u64 %rd9, [smem+8];";
    assertEquals(0, run(copy + wait + second, 7, 9)); // beyond what is read
    assertEquals(-1, run(copy + load, 7, 9));
    assertEquals(-1, run(copy + "cp.async.wait_group 1; " + load, 7, 9));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          tanh.approx.f32 %f9, %f1;             | does not know tanh.approx.f32 in line
          add.sat.s32 %r9, %r1, %r2;            | does not know add.sat.s32
          add.rz.f32 %f9, %f1, %f2;             | does not know add.rz.f32
          div.full.f32 %f9, %f1, %f2;           | does not know div.full.f32
          fma.f32 %f9, %f1, %f2;                | takes 4 operands
          mov.u32 %r9, %clock;                  | does not know %clock
          .local .align 4 .b8 x[4];             | the directive .local
          ld.global.v4.u32 {%r1, %r2}, [%rd10]; | does not know ld.global.v4.u32
          cp.async.ca.shared.global [%r1], [%rd10], 4; | does not know cp.async.ca
          bra NOWHERE;                          | does not know bra
          trap;                                 | trap
          div.s32 %r9, %r1, 0;                  | division by zero
          ld.global.u32 %r9, [%rd10+2];         | is no multiple of that
          ld.global.u32 %r9, [%rd10+1024];      | are in no allocation
          ld.shared.u32 %r9, [smem+64];         | the block has 64
          st.shared.v2.u32 [smem+60], {%r1, %r2}; | is no multiple of that
          LOOP: bra LOOP;                       | does not end
          """)
  void whatIsUnknownOrUndefinedIsAnError(String body, String message) {
    assertFails(message, body, 32);
  }

  @Test
  void lanesThatDoNotMeetAreAnError() {
    String load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3,%r4,%r5,%r6}, [smem];";
    assertFails("not all lanes", load, 20);
    String part = "setp.lt.u32 %p1, %r0, 7; ";
    assertFails("deadlock: lane 0 at bar.sync", part + "@%p1 bar.sync 1, 96;", 32);
    assertFails("lane 7 has the mask", part + "@!%p1 shfl.sync.up.b32 %r3, %r0, 1, 0, 127;", 32);
    assertFails("which is not there", part + "@%p1 shfl.sync.idx.b32 %r3, %r0, 9, 31, 127;", 32);
    assertFails(
        "deadlock", part + "@%p1 shfl.sync.up.b32 %r3, %r0, 1, 0, -1; LOOP: @!%p1 bar.sync 0;", 32);
  }

  @Test
  void aLaunchThatDoesNotFitIsAnError() {
    Module.Entry entry = Module.parse(PTX.formatted("")).entry("k");
    Machine machine = new Machine(new GlobalMemory());
    Machine.Launch tooLarge = new Machine.Launch(1, 128, 0);
    assertThrows(PtxException.class, () -> machine.run(entry, tooLarge, 0, 0));
    Machine.Launch one = new Machine.Launch(1, 1, 0);
    assertThrows(PtxException.class, () -> machine.run(entry, one, 0));
  }
}
