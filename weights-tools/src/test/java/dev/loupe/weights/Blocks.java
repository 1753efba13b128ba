package dev.loupe.weights;

import dev.loupe.weights.ggml.Iq3Grid;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.SplittableRandom;

/**
 * Random blocks of ggml's types and what they stand for, written down from the structures in
 * ggml-common.h block by block, in the order of ggml's loops: another way than the reader's.
 */
final class Blocks {
  private static final int[] TABLE = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
  };

  final int number;
  final int elements;
  final int bytes;

  /** A type by its number in ggml. */
  Blocks(int number) {
    this.number = number;
    this.elements = (number >= 10 && number <= 14) || number > 20 ? 256 : 32;
    this.bytes =
        switch (number) {
          case 2, 20 -> 2 + 16;
          case 3 -> 4 + 16;
          case 6 -> 2 + 4 + 16;
          case 7 -> 4 + 4 + 16;
          case 8 -> 2 + 32;
          case 10 -> 16 + 64 + 4;
          case 11 -> 32 + 64 + 12 + 2;
          case 12 -> 4 + 12 + 128;
          case 13 -> 4 + 12 + 32 + 128;
          case 14 -> 128 + 64 + 16 + 2;
          case 21 -> 2 + 64 + 8 + 32 + 4;
          case 23 -> 2 + 2 + 4 + 128;
          default -> throw new IllegalArgumentException("type " + number);
        };
  }

  byte[] random(int count, SplittableRandom random) {
    byte[] data = new byte[count * bytes];
    random.nextBytes(data);
    ByteBuffer in = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
    int[] scales =
        switch (number) {
          case 3, 7, 12, 13 -> new int[] {0, 2};
          case 10 -> new int[] {80, 82};
          case 11 -> new int[] {108};
          case 14 -> new int[] {208};
          default -> new int[] {0};
        };
    for (int block = 0; block < count; block++) {
      for (int at : scales) { // random bits may be NaN
        short half = Float.floatToFloat16((float) random.nextDouble(-0.02, 0.02));
        in.putShort(block * bytes + at, half);
      }
    }
    return data;
  }

  float[] values(byte[] data) {
    float[] y = new float[data.length / bytes * elements];
    for (int block = 0; block < data.length / bytes; block++) {
      byte[] x = java.util.Arrays.copyOfRange(data, block * bytes, (block + 1) * bytes);
      if (elements == 32) {
        small(x, y, block * 32);
      } else {
        large(x, y, block * 256);
      }
    }
    return y;
  }

  private static float half(byte[] x, int at) {
    return Float.float16ToFloat((short) ((x[at] & 0xFF) | (x[at + 1] << 8)));
  }

  private void small(byte[] x, float[] y, int to) {
    float d = half(x, 0);
    if (number == 8) {
      for (int j = 0; j < 32; j++) {
        y[to + j] = d * x[2 + j];
      }
      return;
    }
    float m = half(x, 2);
    int qs = bytes - 16;
    int high = number == 6 || number == 7 ? qs - 4 : -1;
    for (int j = 0; j < 16; j++) {
      for (int k = 0; k < 2; k++) {
        int q = k == 0 ? x[qs + j] & 0x0F : (x[qs + j] & 0xF0) / 16;
        int e = j + 16 * k;
        if (high >= 0 && (x[high + e / 8] & (1 << e % 8)) != 0) {
          q += 16;
        }
        y[to + e] =
            switch (number) {
              case 2 -> d * (q - 8);
              case 3, 7 -> d * q + m;
              case 6 -> d * (q - 16);
              default -> d * TABLE[q];
            };
      }
    }
  }

  private void large(byte[] x, float[] y, int to) {
    switch (number) {
      case 10 -> q2(x, y, to);
      case 11 -> q3(x, y, to);
      case 12 -> q45(x, y, to, 16, -1);
      case 13 -> q45(x, y, to, 48, 16);
      case 21 -> iq3(x, y, to);
      case 23 -> iq4(x, y, to);
      default -> q6(x, y, to);
    }
  }

  private static void q2(byte[] x, float[] y, int to) {
    int is = 0;
    for (int n = 0; n < 2; n++) {
      for (int shift = 0; shift < 8; shift += 2) {
        for (int group = 0; group < 32; group += 16) {
          float dl = half(x, 80) * (x[is] & 0xF);
          float ml = half(x, 82) * ((x[is] & 0xF0) >> 4);
          is++;
          for (int l = 0; l < 16; l++) {
            y[to++] = dl * (((x[16 + 32 * n + group + l] & 0xFF) >> shift) & 3) - ml;
          }
        }
      }
    }
  }

  private static void q3(byte[] x, float[] y, int to) {
    ByteBuffer in = ByteBuffer.wrap(x).order(ByteOrder.LITTLE_ENDIAN);
    int a0 = in.getInt(96);
    int a1 = in.getInt(100);
    int tmp = in.getInt(104);
    int two = 0x03030303;
    int four = 0x0f0f0f0f;
    ByteBuffer scales =
        ByteBuffer.allocate(16)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putInt((a0 & four) | ((tmp & two) << 4))
            .putInt((a1 & four) | (((tmp >>> 2) & two) << 4))
            .putInt(((a0 >>> 4) & four) | (((tmp >>> 4) & two) << 4))
            .putInt(((a1 >>> 4) & four) | (((tmp >>> 6) & two) << 4));
    int is = 0;
    int mask = 1;
    for (int n = 0; n < 2; n++) {
      for (int shift = 0; shift < 8; shift += 2) {
        for (int group = 0; group < 32; group += 16) {
          float dl = half(x, 108) * (scales.get(is++) - 32);
          for (int l = group; l < group + 16; l++) {
            int q = ((x[32 + 32 * n + l] & 0xFF) >> shift) & 3;
            y[to++] = dl * (q - ((x[l] & mask) != 0 ? 0 : 4));
          }
        }
        mask <<= 1;
      }
    }
  }

  /** Scale and minimum j of eight in 12 bytes from 4 on. */
  private static int[] scaleAndMin(byte[] x, int j) {
    int[] q = new int[12];
    for (int i = 0; i < 12; i++) {
      q[i] = x[4 + i] & 0xFF;
    }
    return j < 4
        ? new int[] {q[j] & 63, q[j + 4] & 63}
        : new int[] {
          (q[j + 4] & 0xF) | ((q[j - 4] >> 6) << 4), (q[j + 4] >> 4) | ((q[j] >> 6) << 4)
        };
  }

  private static void q45(byte[] x, float[] y, int to, int ql, int qh) {
    for (int is = 0; is < 8; is++) {
      int[] both = scaleAndMin(x, is);
      float d = half(x, 0) * both[0];
      float m = half(x, 2) * both[1];
      for (int l = 0; l < 32; l++) {
        int b = x[ql + is / 2 * 32 + l] & 0xFF;
        int q = is % 2 == 0 ? b & 0xF : b >> 4;
        if (qh >= 0 && (x[qh + l] & (1 << is)) != 0) {
          q += 16;
        }
        y[to++] = d * q - m;
      }
    }
  }

  private static void q6(byte[] x, float[] y, int to) {
    float d = half(x, 208);
    for (int n = 0; n < 2; n++) {
      for (int l = 0; l < 32; l++) {
        int is = 192 + 8 * n + l / 16;
        int a = x[64 * n + l] & 0xFF;
        int b = x[64 * n + l + 32] & 0xFF;
        int h = x[128 + 32 * n + l] & 0xFF;
        int at = to + 128 * n + l;
        y[at] = d * x[is] * (((a & 0xF) | ((h & 3) << 4)) - 32);
        y[at + 32] = d * x[is + 2] * (((b & 0xF) | (((h >> 2) & 3) << 4)) - 32);
        y[at + 64] = d * x[is + 4] * (((a >> 4) | (((h >> 4) & 3) << 4)) - 32);
        y[at + 96] = d * x[is + 6] * (((b >> 4) | (((h >> 6) & 3) << 4)) - 32);
      }
    }
  }

  private static void iq3(byte[] x, float[] y, int to) {
    for (int ib = 0; ib < 8; ib++) {
      int scale = ((x[106 + ib / 2] & 0xFF) >> (ib % 2 == 0 ? 0 : 4)) & 0xF;
      float db = half(x, 0) * (1 + 2 * scale);
      for (int l = 0; l < 4; l++) {
        int high = x[66 + ib];
        int first = (x[2 + 8 * ib + 2 * l] & 0xFF) | ((high << (8 - 2 * l)) & 256);
        int second = (x[2 + 8 * ib + 2 * l + 1] & 0xFF) | ((high << (7 - 2 * l)) & 256);
        int signs = x[74 + 4 * ib + l];
        for (int j = 0; j < 4; j++) {
          y[to + j] = db * Iq3Grid.magnitude(first, j) * ((signs & (1 << j)) != 0 ? -1 : 1);
          y[to + j + 4] = db * Iq3Grid.magnitude(second, j) * ((signs & (16 << j)) != 0 ? -1 : 1);
        }
        to += 8;
      }
    }
  }

  private static void iq4(byte[] x, float[] y, int to) {
    int high = (x[2] & 0xFF) | ((x[3] & 0xFF) << 8);
    for (int ib = 0; ib < 8; ib++) {
      int low = ((x[4 + ib / 2] & 0xFF) >> (4 * (ib % 2))) & 0xF;
      float dl = half(x, 0) * ((low | (((high >> (2 * ib)) & 3) << 4)) - 32);
      for (int j = 0; j < 16; j++) {
        y[to + j] = dl * TABLE[x[8 + 16 * ib + j] & 0xF];
        y[to + j + 16] = dl * TABLE[(x[8 + 16 * ib + j] & 0xF0) >> 4];
      }
      to += 32;
    }
  }
}
