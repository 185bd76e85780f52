weft-profile 1
device NVIDIA H200
model llama3-8b
made-for 94e36d7f1dbe262a1d26225a8dadd5c4 9263adb320fa9b3cb21adf3e7930f54e
groups 132
tile 128
context 512
op embed memory
time embed tokens 128 share 1 us 11.328 spread 0.528
time embed tokens 256 share 1 us 14.56 spread 0.112
time embed tokens 384 share 1 us 19.648 spread 0.08
time embed tokens 512 share 1 us 24.512 spread 0.064
time embed tokens 640 share 1 us 29.44 spread 0.08
time embed tokens 768 share 1 us 34.464 spread 0.08
time embed tokens 896 share 1 us 39.264 spread 0.112
time embed tokens 1024 share 1 us 43.968 spread 0.128
time embed tokens 1024 share 0.7 us 264.272 spread 8.224
time embed tokens 1024 share 0.5 us 314.208 spread 0.192
time embed tokens 1024 share 0.2 us 751.088 spread 0.576
op qkv compute
time qkv tokens 128 share 1 us 32.32 spread 0.448
time qkv tokens 256 share 1 us 43.36 spread 0.352
time qkv tokens 384 share 1 us 67.808 spread 0.416
time qkv tokens 512 share 1 us 66.208 spread 0.352
time qkv tokens 640 share 1 us 75.072 spread 0.32
time qkv tokens 768 share 1 us 112.032 spread 1.472
time qkv tokens 896 share 1 us 114.4 spread 0.496
time qkv tokens 1024 share 1 us 104.96 spread 0.4
time qkv tokens 1024 share 0.7 us 154.752 spread 2.88
time qkv tokens 1024 share 0.5 us 198.08 spread 2.432
time qkv tokens 1024 share 0.2 us 438.72 spread 0.464
op prefill_attention compute
time prefill_attention tokens 128 share 1 us 26.176 spread 0.24
time prefill_attention tokens 256 share 1 us 26.048 spread 0.208
time prefill_attention tokens 384 share 1 us 27.456 spread 0.24
time prefill_attention tokens 512 share 1 us 27.072 spread 0.816
time prefill_attention tokens 640 share 1 us 32.672 spread 0.288
time prefill_attention tokens 768 share 1 us 33.6 spread 0.32
time prefill_attention tokens 896 share 1 us 31.808 spread 0.288
time prefill_attention tokens 1024 share 1 us 32.992 spread 0.208
time prefill_attention tokens 1024 share 0.7 us 44.96 spread 0.352
time prefill_attention tokens 1024 share 0.5 us 56.352 spread 0.464
time prefill_attention tokens 1024 share 0.2 us 125.088 spread 0.784
op attn_out compute
time attn_out tokens 128 share 1 us 19.584 spread 0.144
time attn_out tokens 256 share 1 us 25.824 spread 0.352
time attn_out tokens 384 share 1 us 33.088 spread 0.192
time attn_out tokens 512 share 1 us 37.12 spread 0.24
time attn_out tokens 640 share 1 us 49.856 spread 0.384
time attn_out tokens 768 share 1 us 52.032 spread 0.32
time attn_out tokens 896 share 1 us 60.8 spread 0.304
time attn_out tokens 1024 share 1 us 64.288 spread 0.368
time attn_out tokens 1024 share 0.7 us 94.656 spread 0.448
time attn_out tokens 1024 share 0.5 us 103.136 spread 0.448
time attn_out tokens 1024 share 0.2 us 237.568 spread 0.544
op gate_up compute
time gate_up tokens 128 share 1 us 79.68 spread 1.04
time gate_up tokens 256 share 1 us 123.68 spread 2.112
time gate_up tokens 384 share 1 us 198.144 spread 3.664
time gate_up tokens 512 share 1 us 211.056 spread 1.968
time gate_up tokens 640 share 1 us 278.304 spread 1.472
time gate_up tokens 768 share 1 us 326.496 spread 3.28
time gate_up tokens 896 share 1 us 367.296 spread 2.208
time gate_up tokens 1024 share 1 us 358.72 spread 1.488
time gate_up tokens 1024 share 0.7 us 456.352 spread 0.624
time gate_up tokens 1024 share 0.5 us 627.392 spread 1.008
time gate_up tokens 1024 share 0.2 us 1518.032 spread 1.344
op down compute
time down tokens 128 share 1 us 42.272 spread 0.416
time down tokens 256 share 1 us 64.608 spread 0.544
time down tokens 384 share 1 us 100.96 spread 1.168
time down tokens 512 share 1 us 109.984 spread 1.216
time down tokens 640 share 1 us 167.328 spread 2.704
time down tokens 768 share 1 us 166.432 spread 3.152
time down tokens 896 share 1 us 181.216 spread 1.152
time down tokens 1024 share 1 us 182.816 spread 0.416
time down tokens 1024 share 0.7 us 300.56 spread 0.688
time down tokens 1024 share 0.5 us 304.544 spread 0.928
time down tokens 1024 share 0.2 us 730.08 spread 0.896
op decode_attention memory
time decode_attention tokens 1 share 1 us 11.456 spread 0.432
time decode_attention tokens 2 share 1 us 12.448 spread 0.576
time decode_attention tokens 4 share 1 us 14.144 spread 0.384
time decode_attention tokens 8 share 1 us 18.496 spread 0.256
time decode_attention tokens 16 share 1 us 25.632 spread 0.288
time decode_attention tokens 32 share 1 us 40.8 spread 0.56
time decode_attention tokens 64 share 1 us 41.696 spread 0.464
time decode_attention tokens 64 share 0.7 us 48.224 spread 0.592
time decode_attention tokens 64 share 0.5 us 49.856 spread 0.576
time decode_attention tokens 64 share 0.2 us 93.344 spread 0.464
op gather_logits memory
time gather_logits tokens 1 share 1 us 5.248 spread 0.384
time gather_logits tokens 2 share 1 us 5.6 spread 0.496
time gather_logits tokens 4 share 1 us 5.76 spread 0.512
time gather_logits tokens 8 share 1 us 5.792 spread 0.48
time gather_logits tokens 16 share 1 us 5.856 spread 0.272
time gather_logits tokens 32 share 1 us 6.784 spread 0.512
time gather_logits tokens 64 share 1 us 8.16 spread 0.464
time gather_logits tokens 64 share 0.7 us 17.952 spread 0.128
time gather_logits tokens 64 share 0.5 us 22.4 spread 0.112
time gather_logits tokens 64 share 0.2 us 49.056 spread 0.096
op logits memory
time logits tokens 1 share 1 us 240.032 spread 0.736
time logits tokens 2 share 1 us 242.432 spread 0.656
time logits tokens 4 share 1 us 245.024 spread 0.64
time logits tokens 8 share 1 us 247.136 spread 0.784
time logits tokens 16 share 1 us 254.416 spread 0.72
time logits tokens 32 share 1 us 260.256 spread 0.784
time logits tokens 64 share 1 us 282.064 spread 0.912
time logits tokens 64 share 0.7 us 452.48 spread 3.552
time logits tokens 64 share 0.5 us 532.448 spread 2.608
time logits tokens 64 share 0.2 us 1023.584 spread 2.544
op argmax memory
time argmax tokens 1 share 1 us 18.688 spread 0.096
time argmax tokens 2 share 1 us 18.72 spread 0.112
time argmax tokens 4 share 1 us 18.784 spread 0.096
time argmax tokens 8 share 1 us 18.816 spread 0.096
time argmax tokens 16 share 1 us 18.848 spread 0.096
time argmax tokens 32 share 1 us 19.616 spread 0.096
time argmax tokens 64 share 1 us 19.232 spread 0.08
time argmax tokens 64 share 0.7 us 19.072 spread 0.176
time argmax tokens 64 share 0.5 us 18.88 spread 0.144
time argmax tokens 64 share 0.2 us 48.064 spread 0.096
together compute share 0.1 rate 0.1103387124 spread 0.002920664579
together compute share 0.2 rate 0.2159767329 spread 0.001210709383
together compute share 0.3 rate 0.2211172201 spread 0.001692301493
together compute share 0.4 rate 0.2795837966 spread 0.007023170455
together compute share 0.5 rate 0.410123318 spread 0.003510572925
together compute share 0.6 rate 0.4867308993 spread 0.006916020464
together compute share 0.7 rate 0.6731162052 spread 0.007551757572
together compute share 0.8 rate 0.7313464772 spread 0.01910854793
together compute share 0.9 rate 0.8608781631 spread 0.01250518309
together compute share 1 rate 0.9957749011 spread 0.01859151232
together memory share 0.1 rate 0.2110423531 spread 0.004192658667
together memory share 0.2 rate 0.3783783784 spread 0.01218330706
together memory share 0.3 rate 0.5627797911 spread 0.02153822495
together memory share 0.4 rate 0.6506986028 spread 0.01728927375
together memory share 0.5 rate 0.7227346717 spread 0.01768743253
together memory share 0.6 rate 0.7576811594 spread 0.02174114682
together memory share 0.7 rate 0.8198142415 spread 0.02313604079
together memory share 0.8 rate 0.6602697095 spread 0.0117915874
together memory share 0.9 rate 0.7232968881 spread 0.01801840674
together copy share 0 rate 0.993625498 spread 0.00873192489
energy qkv tokens 1024 share 1 joules 0.08593490974 us 128.5893954 gflop 51.53960755 mb 77.6192
energy attn_out tokens 1024 share 1 joules 0.05764251647 us 76.24640298 gflop 34.35973837 mb 75.497472
energy gate_up tokens 1024 share 1 joules 0.3323758651 us 450.58158 gflop 240.5181686 mb 281.034752
energy down tokens 1024 share 1 joules 0.1540713208 us 219.754356 gflop 120.2590843 mb 180.355072
energy decode_attention tokens 64 share 1 joules 0.02178783245 us 48.26488968 gflop 0.536870912 mb 135.267328
energy logits tokens 64 share 1 joules 0.2204774011 us 317.9703653 gflop 67.24308173 mb 1084.571648
energy qkv tokens 1024 share 0.5 joules 0.1236059415 us 226.5466841 gflop 51.53960755 mb 77.6192
energy attn_out tokens 1024 share 0.5 joules 0.07288440722 us 128.9490849 gflop 34.35973837 mb 75.497472
energy gate_up tokens 1024 share 0.5 joules 0.4682632353 us 736.5353978 gflop 240.5181686 mb 281.034752
energy down tokens 1024 share 0.5 joules 0.2454988971 us 368.6322015 gflop 120.2590843 mb 180.355072
energy decode_attention tokens 64 share 0.5 joules 0.02292447182 us 58.93643803 gflop 0.536870912 mb 135.267328
energy logits tokens 64 share 0.5 joules 0.3132912679 us 603.8800371 gflop 67.24308173 mb 1084.571648
power idle 149.938275 static 347.4805055 limit 700 flop 0.7577288834 byte 33.74720002
