/* A step of gradient descent of a network of 24 inputs, 12 relus and a softmax over 6 classes, for llvm_graph to trace. */
#include <math.h>
#include <stdio.h>

enum { inputs = 24, hidden = 12, classes = 6 };

static float w1[hidden][inputs], w2[classes][hidden];
static float x[inputs], h[hidden], p[classes], dh[hidden];

__attribute__((noinline)) void step(int label, float rate) {
  for (int i = 0; i < hidden; ++i) {
    float sum = 0.0f;
    for (int k = 0; k < inputs; ++k) sum += w1[i][k] * x[k];
    h[i] = sum > 0.0f ? sum : 0.0f;
  }
  float most = -1e30f, total = 0.0f;
  for (int i = 0; i < classes; ++i) {
    float sum = 0.0f;
    for (int k = 0; k < hidden; ++k) sum += w2[i][k] * h[k];
    p[i] = sum;
    if (sum > most) most = sum;
  }
  for (int i = 0; i < classes; ++i) {
    p[i] = expf(p[i] - most);
    total += p[i];
  }
  for (int i = 0; i < classes; ++i) p[i] = p[i] / total - (i == label ? 1.0f : 0.0f);  /* now the gradient */
  for (int k = 0; k < hidden; ++k) {
    float sum = 0.0f;
    for (int i = 0; i < classes; ++i) sum += p[i] * w2[i][k];
    dh[k] = h[k] > 0.0f ? sum : 0.0f;
  }
  for (int i = 0; i < classes; ++i) {
    const float d = rate * p[i];
    for (int k = 0; k < hidden; ++k) w2[i][k] -= d * h[k];
  }
  for (int i = 0; i < hidden; ++i) {
    const float d = rate * dh[i];
    for (int k = 0; k < inputs; ++k) w1[i][k] -= d * x[k];
  }
}

int main(void) {
  for (int i = 0; i < hidden; ++i)
    for (int k = 0; k < inputs; ++k) w1[i][k] = 0.1f * (float)((i * 7 + k * 3) % 11 - 5);
  for (int i = 0; i < classes; ++i)
    for (int k = 0; k < hidden; ++k) w2[i][k] = 0.1f * (float)((i * 5 + k * 2) % 7 - 3);
  for (int k = 0; k < inputs; ++k) x[k] = 0.1f * (float)(k % 5);
  step(2, 0.1f);
  printf("%.6f\n", (double)w1[3][4]);
  return 0;
}
