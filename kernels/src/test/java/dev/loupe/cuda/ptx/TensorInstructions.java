package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action;
import dev.loupe.cuda.ptx.text.Operand;

/**
 * {@code ldmatrix} and {@code mma} (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions",
 * with the tables "Matrix Fragments for mma.m16n8k8" and "mma.m16n8k16").
 *
 * <p>The ISA leaves the order and the rounding of the sum open. What is assumed: a tensor core adds
 * 8 products (4 of tf32) and the accumulator exactly and cuts the sum to f32, as Fasi, Higham,
 * Mikaitis and Pranesh measured on an A100 ("Numerical behavior of NVIDIA tensor cores", 2021), but
 * for the bits that the card drops when it aligns the products.
 */
final class TensorInstructions {
  private static final int ROWS = 16;
  private static final int COLUMNS = 8;

  private TensorInstructions() {}

  /**
   * ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16: lane 8 i + j has the address of row j of
   * matrix i; lane l gets elements 2 (l % 4) and the next of row l / 4 of each matrix.
   */
  static Action loadMatrix(Statement s) {
    s.modifiers(1, "sync", "aligned", "m8n8", "x4", "trans", "shared").count(2);
    int[] to = s.vector(0);
    if (!s.name().replace(".trans", "").equals("ldmatrix.sync.aligned.m8n8.x4.shared.b16")
        || to.length != 4) {
      throw s.unknown();
    }
    boolean transposed = s.has("trans");
    Operand.Address from = s.address(1);
    return new Action.Collective(
        -1,
        (warp, lanes) -> {
          long[] rows = warp.registers[from.base()].clone(); // may be a result's register too
          for (int lane = 0; lane < Warp.LANES; lane++) {
            for (int i = 0; i < 4; i++) {
              long pair = 0;
              for (int half = 0; half < 2; half++) {
                int row = transposed ? lane % 4 * 2 + half : lane / 4;
                int column = transposed ? lane / 4 : lane % 4 * 2 + half;
                long start = rows[8 * i + row] + from.offset();
                Memory.requireAligned(start, 16);
                long address = start + 2L * column;
                pair |= Memory.load(warp.block().shared(address, 2), address, 2) << (16 * half);
              }
              warp.registers[to[i]][lane] = pair;
            }
          }
        });
  }

  /** An element of a fragment in the registers of a warp. */
  private interface Fragment {
    double at(Warp warp, int[] registers, int row, int column);
  }

  static Action multiply(Statement s) {
    s.count(4);
    return switch (s.name()) {
      case "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" -> multiply(s, 8, 8, Floats::half);
      case "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" -> multiply(s, 16, 8, Floats::half);
      case "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" ->
          multiply(s, 16, 8, Floats::bfloat);
      case "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" ->
          action(
              s,
              8,
              4,
              (warp, r, row, k) -> tf32(warp, r[row / 8 + k / 4 * 2], row % 8 * 4 + k % 4),
              (warp, r, k, n) -> tf32(warp, r[k / 4], n * 4 + k % 4));
      default -> throw s.unknown();
    };
  }

  private interface Sixteen {
    float of(long bits);
  }

  /** 16-bit types: two neighbours along K in a register, the first in its lower half. */
  private static Action multiply(Statement s, int depth, int step, Sixteen type) {
    return action(
        s,
        depth,
        step,
        (warp, r, row, k) ->
            sixteen(type, warp, r[row / 8 + k / 8 * 2], row % 8 * 4 + k % 8 / 2, k % 2),
        (warp, r, k, n) -> sixteen(type, warp, r[k / 8], n * 4 + k % 8 / 2, k % 2));
  }

  private static float sixteen(Sixteen type, Warp warp, int register, int lane, int half) {
    return type.of(warp.registers[register][lane] >>> (16 * half) & 0xffff);
  }

  /** The low 13 bits are not part of tf32. */
  private static float tf32(Warp warp, int register, int lane) {
    return Floats.f32(warp.registers[register][lane] & ~0x1fffL);
  }

  private static Action action(Statement s, int depth, int step, Fragment a, Fragment b) {
    int[] to = s.vector(0);
    int[] left = s.vector(1);
    int[] right = s.vector(2);
    int[] add = s.vector(3);
    int perRegister = step == 4 ? 1 : 2;
    if (to.length != 4
        || add.length != 4
        || left.length * perRegister * Warp.LANES != ROWS * depth
        || right.length * perRegister * Warp.LANES != depth * COLUMNS) {
      throw s.unknown();
    }
    return new Action.Collective(
        -1,
        (warp, lanes) -> {
          double[][] x = new double[ROWS][depth];
          double[][] y = new double[depth][COLUMNS];
          for (int k = 0; k < depth; k++) {
            for (int row = 0; row < ROWS; row++) {
              x[row][k] = a.at(warp, left, row, k);
            }
            for (int n = 0; n < COLUMNS; n++) {
              y[k][n] = b.at(warp, right, k, n);
            }
          }
          long[][] result = new long[4][Warp.LANES];
          for (int row = 0; row < ROWS; row++) {
            for (int n = 0; n < COLUMNS; n++) {
              int lane = row % 8 * 4 + n / 2;
              int i = row / 8 * 2 + n % 2;
              float sum = Floats.f32(warp.registers[add[i]][lane]);
              for (int first = 0; first < depth; first += step) {
                ExactSum exact = new ExactSum(sum);
                for (int k = first; k < first + step; k++) {
                  exact.add(x[row][k] * y[k][n]);
                }
                sum = exact.cut();
              }
              result[i][lane] = Floats.bits(sum);
            }
          }
          for (int i = 0; i < 4; i++) {
            System.arraycopy(result[i], 0, warp.registers[to[i]], 0, Warp.LANES);
          }
        });
  }
}
